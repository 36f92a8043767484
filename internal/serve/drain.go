package serve

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"
	"time"

	"go.uber.org/zap"

	"github.com/retryproxy/retryproxy/proxy"
)

// work waits for events between start and end.
func (a *app) work(ctx context.Context, signals <-chan os.Signal, served, adminEnded <-chan error) error {
	for {
		select {
		case s := <-signals:
			if isEnd(s) {
				return a.end(s.String(), a.drainDelay(), signals, s, 1, served)
			}
			if s == syscall.SIGHUP {
				a.reload("SIGHUP")
			}
		case <-a.changed:
			a.reload("a file changed")
		case <-a.drain:
			return a.end("asked through the admin listener", a.drainDelay(), signals, nil, 0, served)
		case <-a.quit:
			return a.end("asked to quit through the admin listener", 0, signals, nil, 0, served)
		case <-ctx.Done():
			return a.end("context ended", a.drainDelay(), signals, nil, 1, served)
		case err := <-served:
			return fmt.Errorf("the listeners stopped by themselves: %w", err)
		case err := <-adminEnded:
			return fmt.Errorf("the admin listener stopped by itself: %w", err)
		}
	}
}

func (a *app) drainDelay() time.Duration { return a.inForce.Load().settings.DrainDelay }

// end drains. Readiness fails at once, requests are accepted for the delay, then the data
// path finishes. A second signal ends everything; a request to quit only ends the delay.
func (a *app) end(why string, delay time.Duration, signals <-chan os.Signal, first os.Signal, seen int, served <-chan error) error {
	a.phase.Store(&phaseDraining)
	a.ending.Begin()
	defer a.ending.Drained()
	s := a.inForce.Load().settings
	a.log.Info("draining", zap.String("why", why), zap.Duration("delay_seconds", delay), zap.Duration("timeout_seconds", s.DrainTimeout))
	began := time.Now()
	patience, force := context.WithCancel(context.Background())
	defer force()
	var watching sync.WaitGroup
	done := make(chan struct{})
	watching.Go(func() { watchForce(signals, first, seen, force, done) })

	waited := time.NewTimer(delay)
	select {
	case <-waited.C:
	case <-a.quit:
		waited.Stop()
	case <-patience.Done():
		waited.Stop()
	}
	a.log.Info("ending connections", zap.Duration("after_seconds", time.Since(began)))
	a.drainedBy = time.Now().Add(s.DrainTimeout)
	err := a.proxy.Drain(patience)
	forced := patience.Err() != nil
	close(done)
	watching.Wait()
	if serveErr := <-served; serveErr != nil {
		err = errors.Join(err, serveErr)
	}
	switch {
	case forced:
		a.drainedBy = time.Now()
		a.log.Warn("ended by a second signal; requests in flight were cut off", zap.Int("requests", a.proxy.CutOff()), zap.Duration("duration_seconds", time.Since(began)))
		return errForce
	case errors.Is(err, proxy.ErrDrainTimeout):
		a.log.Warn("requests in flight did not end in time and were cut off", zap.Int("requests", a.proxy.CutOff()), zap.Duration("duration_seconds", time.Since(began)))
		return nil // as the setting demands
	case err != nil:
		return err
	}
	a.log.Info("drained", zap.Duration("duration_seconds", time.Since(began)))
	return nil
}

// sameSignal is how long the same signal again does not count as a second one: timeout(1) signals its
// child, and then the group to which the child belongs.
const sameSignal = 100 * time.Millisecond

// watchForce calls force at the second signal to end. last is the signal that came just now, or nil.
func watchForce(signals <-chan os.Signal, last os.Signal, seen int, force func(), done <-chan struct{}) {
	at := time.Now()
	for {
		select {
		case s := <-signals:
			if !isEnd(s) {
				continue
			}
			if s == last && time.Since(at) < sameSignal {
				continue
			}
			last, at = s, time.Now()
			if seen++; seen > 1 {
				force()
				return
			}
		case <-done:
			return
		}
	}
}
