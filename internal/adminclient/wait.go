package adminclient

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/retryproxy/retryproxy/internal/config"
)

const (
	waitInterval = 100 * time.Millisecond // a request is cheap for the proxy
	waitAsk      = 2 * time.Second        // timeout of one request; the next one may succeed
)

// AwaitReady returns nil as soon as the proxy is ready. If ctx ends before, it returns why
// the proxy was not ready.
func AwaitReady(ctx context.Context, a config.Address) error {
	last := errors.New("not asked")
	ticker := time.NewTicker(waitInterval)
	defer ticker.Stop()
	for ctx.Err() == nil {
		err := askReady(ctx, a)
		if err == nil {
			return nil
		}
		if ctx.Err() == nil { // otherwise only ctx has ended
			last = err
		}
		select {
		case <-ctx.Done():
		case <-ticker.C:
		}
	}
	return last
}

func askReady(ctx context.Context, a config.Address) error {
	ctx, cancel := context.WithTimeout(ctx, waitAsk)
	defer cancel()
	status, body, err := Send(ctx, a, http.MethodGet, "/readyz", "")
	switch {
	case err != nil:
		return err
	case status != http.StatusOK:
		return errors.New(body)
	}
	return nil
}
