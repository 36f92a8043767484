package main

import (
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// prematureAttacks end requests as soon as they are begun. A client of HTTP/2 has
// atOnce requests at once, and each of these would take workTime: whoever makes the proxy
// begin more of them in a second than an honest client could has found a way around that.
var prematureAttacks = []attack{
	premature("rapid reset, seen from the upstream", false, func(f *frames, id uint32) error { return f.WriteRSTStream(id, http2.ErrCodeCancel) }),
	premature("MadeYouReset, windows of 0", false, func(f *frames, id uint32) error { return f.WriteWindowUpdate(id, 0) }),
	premature("MadeYouReset, windows that overflow", false, func(f *frames, id uint32) error { return f.WriteWindowUpdate(id, 1<<31-1) }),
	premature("MadeYouReset, DATA behind the end", false, func(f *frames, id uint32) error { return f.WriteData(id, false, []byte("x")) }),
	premature("MadeYouReset, dependent on itself", false, func(f *frames, id uint32) error {
		return f.WritePriority(id, http2.PriorityParam{StreamDep: id})
	}),
	premature("less than content-length", true, func(f *frames, id uint32) error { return f.WriteData(id, true, []byte("x")) }),
	{name: "cut uploads beside other streams", conns: 1, bound: atEase + perConn + atOnce*perStream, why: "a connection with 128 requests", prepare: prepareCutUploads},
}

// workTime is how long the upstream takes for each request of an attacker.
const workTime = time.Second

func premature(name string, upload bool, end func(f *frames, id uint32) error) attack {
	return attack{
		name: name, conns: 1, bound: atEase + perConn + atOnce*perStream, why: "a connection with 128 requests",
		prepare: func(st *stage) error { return (&begunStage{upload: upload, end: end}).prepare(st) },
	}
}

// begunStage counts the requests that an attacker has begun at its upstream.
type begunStage struct {
	upload bool
	end    func(f *frames, id uint32) error
	begun  atomic.Int64
	since  time.Time
}

func (g *begunStage) prepare(st *stage) error {
	addr, err := st.serve(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		g.begun.Add(1)
		select {
		case <-r.Context().Done():
		case <-time.After(workTime):
		}
	}))
	if err != nil {
		return err
	}
	st.env = append(st.env, "RETRYPROXY_ROUTES=work", "RETRYPROXY_ROUTE_WORK_PATH=/work", "RETRYPROXY_ROUTE_WORK_UPSTREAM=http://"+addr)
	st.strike, st.judge = g.strike, g.judge
	st.begin = func(*proxy) error { g.since = time.Now(); return nil }
	return nil
}

func (g *begunStage) strike(s *strike) error {
	f, err := s.http2(true)
	if err != nil {
		return err
	}
	return s.every(0, func() error {
		block := f.block("GET", "/work")
		if g.upload {
			block = f.block("POST", "/work", "content-length", "1000")
		}
		id, err := f.begin(block, !g.upload)
		if err != nil {
			return err
		}
		return g.end(f, id)
	})
}

func (g *begunStage) judge(*proxy) (told string, wrong []string) {
	perSecond := float64(g.begun.Load()) / time.Since(g.since).Seconds()
	honest := atOnce / workTime.Seconds()
	if perSecond > honest {
		wrong = append(wrong, fmt.Sprintf("%.0f requests a second were begun upstream, more than an honest client's %.0f", perSecond, honest))
	}
	return fmt.Sprintf("%.0f requests a second begun upstream, of %.0f that an honest client could have there", perSecond, honest), wrong
}

// cutUploads cuts cutPerSecond uploads and asks for something else now and then, on one connection.
type cutUploads struct {
	findings
	asked, answered, cut atomic.Int64
}

const (
	cutPerSecond = 950
	cutPerAsk    = 30
)

func prepareCutUploads(st *stage) error {
	g := &cutUploads{}
	st.strike, st.judge = g.strike, g.judge
	return nil
}

func (g *cutUploads) strike(s *strike) error {
	f, err := s.http2(false)
	if err != nil {
		return err
	}
	go g.listen(http2.NewFramer(nil, f.nc))
	began := time.Now()
	err = s.every(time.Millisecond, func() error {
		for due := int64(time.Since(began).Seconds() * cutPerSecond); g.cut.Load() < due; g.cut.Add(1) {
			if err := g.one(f); err != nil {
				return err
			}
		}
		return f.out.Flush()
	})
	if err != nil && s.Err() == nil {
		g.add("the connection was ended: %v", err)
	}
	return err
}

// one cuts an upload, and asks for something else where that is due.
func (g *cutUploads) one(f *frames) error {
	id, err := f.begin(f.block("POST", "/deaf", "content-length", "1000"), false)
	if err != nil {
		return err
	}
	if err := f.WriteData(id, false, []byte("part")); err != nil {
		return err
	}
	if err := f.WriteRSTStream(id, http2.ErrCodeCancel); err != nil || g.cut.Load()%cutPerAsk != 0 {
		return err
	}
	g.asked.Add(1)
	_, err = f.begin(f.block("GET", "/ok"), true)
	return err
}

func (g *cutUploads) listen(f *http2.Framer) {
	f.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	for {
		frame, err := f.ReadFrame()
		if err != nil {
			return
		}
		switch frame := frame.(type) {
		case *http2.MetaHeadersFrame:
			if frame.PseudoValue("status") == "200" {
				g.answered.Add(1)
			}
		case *http2.GoAwayFrame:
			g.add("told to go away: %v", frame.ErrCode)
		}
	}
}

// lateAsks are those that were in flight when the attack ended.
const lateAsks = cutPerSecond / cutPerAsk / 4

func (g *cutUploads) judge(*proxy) (told string, wrong []string) {
	asked, answered := g.asked.Load(), g.answered.Load()
	if answered < asked-lateAsks {
		g.add("%d of %d other requests on the connection were answered", answered, asked)
	}
	return fmt.Sprintf("%d uploads cut, %d of %d other requests on the connection answered", g.cut.Load(), answered, asked), g.all()
}
