package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/retryproxy/retryproxy/bench/internal/rig"
)

// engine is a redis-server on loopback that keeps nothing on disk.
type engine struct {
	bed     *rig.Bed
	program string
	addr    string
	child   *rig.Child
	client  *redis.Client // of this program; the proxies have their own
}

// silence is the log of the client library. Errors are handled where they occur.
type silence struct{}

func (silence) Printf(context.Context, string, ...any) {}

func init() { redis.SetLogger(silence{}) }

// startEngine starts an engine.
func startEngine(bed *rig.Bed, program string) (*engine, error) {
	e := &engine{bed: bed, program: program, addr: rig.OwnAddresses(1)[0]}
	e.client = redis.NewClient(&redis.Options{Addr: e.addr, PoolSize: 1, MaxRetries: -1, DialTimeout: 500 * time.Millisecond, ReadTimeout: 500 * time.Millisecond})
	bed.Later(func() { _ = e.client.Close() })
	return e, e.start()
}

// start starts the server, empty, at its address.
func (e *engine) start() error {
	p := rig.Redis(e.program)
	p.Listen = e.addr
	child, err := e.bed.StartPeer(p, "", nil)
	if err != nil {
		return fmt.Errorf("%w; on Debian: apt-get install redis-server", err)
	}
	e.child = child.Child
	return nil
}

func (e *engine) pause() error { return e.child.Signal(syscall.SIGSTOP) }
func (e *engine) goOn() error  { return e.child.Signal(syscall.SIGCONT) }

// sharing returns the settings for sharing through the engine.
func (e *engine) sharing(scope string) []string {
	return []string{"RETRYPROXY_SHARED=redis://" + e.addr + "/0?scope=" + scope}
}

// awaitListeners waits until n processes listen on each channel.
func (e *engine) awaitListeners(ctx context.Context, n, channels int) error {
	return rig.Await(ctx, fmt.Sprintf("%d processes listening on %d channels of the engine", n, channels), 15*time.Second, func() bool {
		names, err := e.client.PubSubChannels(ctx, "*").Result()
		if err != nil || len(names) < channels {
			return false
		}
		counts, err := e.client.PubSubNumSub(ctx, names...).Result()
		return err == nil && slices.Min(slices.Collect(maps.Values(counts))) >= int64(n)
	})
}

// processed returns how many commands the server has run since its start.
func (e *engine) processed(ctx context.Context) (n int, err error) {
	stats, err := e.client.InfoMap(ctx, "stats").Result()
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(stats["Stats"]["total_commands_processed"])
}

// count counts the commands of each second until ctx ends, as long as the engine answers.
func (e *engine) count(ctx context.Context, line *rig.Timeline) {
	for before := -1; ctx.Err() == nil; rig.Sleep(ctx, time.Second) {
		now, err := e.processed(ctx)
		if err != nil {
			continue
		}
		if now < before { // started again
			before = 0
		}
		if before >= 0 {
			line.Count(commands, max(0, now-before-1)) // one was ours
		}
		before = now
	}
}

// stock is what the engine stores.
type stock struct {
	Keys    int `json:"keys"`
	Forever int `json:"without_expiry"`
}

// mostKeys bounds the keys that are inspected.
const mostKeys = 10_000

func (e *engine) stock(ctx context.Context) (*stock, error) {
	s := &stock{}
	for keys := e.client.Scan(ctx, 0, "*", 1000).Iterator(); keys.Next(ctx) && s.Keys < mostKeys; {
		left, err := e.client.TTL(ctx, keys.Val()).Result()
		if err != nil {
			return nil, err
		}
		s.Keys++
		if left == -1 { // the TTL of a key without expiry
			s.Forever++
		}
	}
	return s, nil
}
