package advise

import (
	"context"
	"errors"
	"fmt"
	"net/http"
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
	status, text, err := ask(ctx, http.MethodGet, "/metrics", "")
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
	status, text, err := ask(ctx, http.MethodGet, "/config", "")
	if err != nil || status != http.StatusOK {
		return nil, err
	}
	return ParseSettings(text)
}
