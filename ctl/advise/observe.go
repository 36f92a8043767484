package advise

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/retryproxy/retryproxy/internal/adminclient"
)

// Observe reads the samples and the current settings.
func Observe(ctx context.Context, ask adminclient.Ask, window time.Duration) (*Input, error) {
	in := &Input{}
	var err error
	if in.After, err = takeSample(ctx, ask); err != nil {
		return nil, err
	}
	began := time.Now()
	if in.After.Started > 0 {
		in.Seconds = float64(began.UnixNano())/1e9 - in.After.Started
	}
	if window > 0 {
		timer := time.NewTimer(window)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
			return nil, errors.New("stopped before the second sample")
		}
		in.Before = in.After
		if in.After, err = takeSample(ctx, ask); err != nil {
			return nil, err
		}
		in.Seconds = time.Since(began).Seconds()
	}
	in.Settings, err = askSettings(ctx, ask)
	return in, err
}

func takeSample(ctx context.Context, ask adminclient.Ask) (*Sample, error) {
	status, text, err := ask(ctx, http.MethodGet, "/metrics")
	switch {
	case err != nil:
		return nil, err
	case status != http.StatusOK:
		return nil, fmt.Errorf("cannot read the metrics: status %d: %s", status, text)
	}
	return Parse(text)
}

// askSettings returns nil if the settings are hidden, as they are from other machines.
func askSettings(ctx context.Context, ask adminclient.Ask) (map[string]InForce, error) {
	status, text, err := ask(ctx, http.MethodGet, "/config")
	if err != nil || status != http.StatusOK {
		return nil, err
	}
	return ParseSettings(text)
}

// InForce holds the current settings of a route that advice uses.
type InForce struct {
	DryRun         bool
	MaxRetries     int
	AttemptTimeout time.Duration     // 0: none
	RequestTimeout time.Duration     // 0: none
	QueueTimeout   time.Duration     // the longest wait for an upstream that is down; 0: none
	Values         map[string]string // by key, in the syntax of the settings
}

// defaults applies to a process that does not show its settings.
func defaults() InForce {
	return InForce{MaxRetries: 3, RequestTimeout: 30 * time.Second, QueueTimeout: 20 * time.Second}
}

// ParseSettings parses a response of /config.
func ParseSettings(text string) (map[string]InForce, error) {
	var config struct {
		Routes []struct {
			Name     string `json:"name"`
			Settings map[string]struct {
				Value string `json:"value"`
			} `json:"settings"`
		} `json:"routes"`
	}
	if err := json.Unmarshal([]byte(text), &config); err != nil {
		return nil, fmt.Errorf("read the settings in force: %w", err)
	}
	routes := map[string]InForce{}
	for _, r := range config.Routes {
		now := defaults()
		now.Values = map[string]string{}
		for key, s := range r.Settings {
			now.Values[key] = s.Value
		}
		now.DryRun = now.Values["DRY_RUN"] == "true"
		if n, err := strconv.Atoi(now.Values["MAX_RETRIES"]); err == nil {
			now.MaxRetries = n
		}
		now.AttemptTimeout = 0 // also with auto
		parseTime(&now.AttemptTimeout, now.Values["ATTEMPT_TIMEOUT"])
		parseTime(&now.RequestTimeout, now.Values["REQUEST_TIMEOUT"])
		parseTime(&now.QueueTimeout, now.Values["QUEUE_TIMEOUT"])
		if now.Values["BREAKER"] != "queue" {
			now.QueueTimeout = 0
		}
		routes[r.Name] = now
	}
	return routes, nil
}

func parseTime(to *time.Duration, s string) {
	if d, err := time.ParseDuration(s); err == nil {
		*to = d
	}
}
