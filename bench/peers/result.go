package main

import (
	"fmt"
	"strings"

	"github.com/retryproxy/retryproxy/bench/internal/rig"
)

// result is what a case brought.
type result struct {
	Case   string             `json:"case"`
	Work   string             `json:"work"`
	Unit   string             `json:"unit"`
	Goal   string             `json:"goal"`
	Note   string             `json:"note,omitempty"`
	Values map[string]*values `json:"values"` // by proxy
	Met    bool               `json:"met"`
	more   string             // to print
}

// values are one proxy's.
type values struct {
	rig.Figures
	Requests int  `json:"requests,omitempty"`
	Failed   int  `json:"failed,omitempty"`
	Errors   bool `json:"socket_errors,omitempty"`
}

func (r *result) of(name string) *values {
	if r.Values == nil {
		r.Values = map[string]*values{}
	}
	if r.Values[name] == nil {
		r.Values[name] = &values{}
	}
	return r.Values[name]
}

func (r *result) add(name string, v float64) { o := r.of(name); o.All = append(o.All, v) }

func (r *result) sent(name string, s *rig.Result) {
	o := r.of(name)
	o.Requests, o.Failed, o.Errors = o.Requests+s.Requests, o.Failed+s.Failed, o.Errors || s.SocketErrors
}

// conclude takes the medians and the ratios to HAProxy.
func (r *result) conclude(met func(r *result) bool) {
	for _, v := range r.Values {
		var to []float64
		if first := r.Values[haproxy]; first != nil {
			to = first.All
		}
		v.Conclude(to)
	}
	r.Met = met(r)
}

func (r *result) ours() float64  { return r.of(ours).Median }
func (r *result) ratio() float64 { return r.of(ours).Ratio }

// belowNginx compares within the rounds too.
func (r *result) belowNginx() bool {
	f := rig.Figures{All: r.of(ours).All}
	f.Conclude(r.of(nginx).All)
	return f.Ratio < 1
}

func (r *result) failedShare() float64 {
	return float64(r.of(ours).Failed) / float64(max(r.of(ours).Requests, 1))
}

func (r *result) verdict() string {
	if r.Met {
		return "met"
	}
	return "missed"
}

// last is what the last round brought.
func (r *result) last() string {
	var parts []string
	for _, name := range []string{haproxy, nginx, ours} {
		if v := r.Values[name]; v != nil && len(v.All) > 0 {
			parts = append(parts, fmt.Sprintf("%s %.2f", name, v.All[len(v.All)-1]))
		}
	}
	return strings.Join(parts, ", ") + " " + r.Unit
}

// cell is what the table says of a proxy.
func (r *result) cell(name string) string {
	v := r.Values[name]
	if v == nil || len(v.All) == 0 {
		return "—"
	}
	text := fmt.Sprintf("%.1f", v.Median)
	if r.Unit == "x" {
		text = fmt.Sprintf("%.2f", v.Median)
	}
	if v.Ratio > 0 && name != haproxy {
		text += fmt.Sprintf(" (%.2f, %.2f to %.2f)", v.Ratio, v.Low, v.High)
	}
	if v.Failed > 0 {
		text += fmt.Sprintf(", %.4f %% failed", 100*float64(v.Failed)/float64(v.Requests))
	}
	if v.Errors {
		text += ", socket errors"
	}
	return text
}
