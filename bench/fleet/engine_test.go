package main

import (
	"testing"
	"time"

	"github.com/retryproxy/retryproxy/bench/internal/rig"
	"github.com/retryproxy/retryproxy/internal/needs"
)

func startTestEngine(t *testing.T) *engine {
	t.Helper()
	needs.Program(t, "redis-server", "redis-server")
	bed := &rig.Bed{}
	t.Cleanup(bed.End)
	e, err := startEngine(bed, "redis-server")
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func TestStockFindsKeysWithoutExpiry(t *testing.T) {
	e, ctx := startTestEngine(t), t.Context()
	e.client.Set(ctx, "a", "1", time.Minute)
	e.client.Set(ctx, "b", "1", time.Minute)
	e.client.Set(ctx, "c", "1", 0)
	s, err := e.stock(ctx)
	if err != nil || s.Keys != 3 || s.Forever != 1 {
		t.Errorf("%+v, %v", s, err)
	}
	if err := e.client.FlushAll(ctx).Err(); err != nil {
		t.Fatal(err)
	}
	if s, err := e.stock(ctx); err != nil || s.Keys != 0 {
		t.Errorf("after a flush: %+v, %v", s, err)
	}
}

func TestWhatHappensToTheEngineHappens(t *testing.T) {
	e, ctx := startTestEngine(t), t.Context()
	answers := func() bool {
		n, err := e.processed(ctx)
		return err == nil && n > 0
	}
	if err := e.pause(); err != nil || answers() {
		t.Errorf("paused, %v: it answers", err)
	}
	if err := e.goOn(); err != nil || !answers() {
		t.Errorf("going on, %v: it does not answer", err)
	}
	e.child.Kill()
	if answers() {
		t.Error("killed: it answers")
	}
	if err := e.start(); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(time.Minute); !answers(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("started again, it does not answer after a minute")
		}
	}
}

func TestListenersAreAwaited(t *testing.T) {
	e, ctx := startTestEngine(t), t.Context()
	s := e.client.Subscribe(ctx, "told")
	defer s.Close()
	if _, err := s.Receive(ctx); err != nil {
		t.Fatal(err)
	}
	if err := e.awaitListeners(ctx, 1, 1); err != nil {
		t.Error(err)
	}
}
