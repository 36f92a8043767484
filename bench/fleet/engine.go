package main

import (
	"context"
	"fmt"
	"maps"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/retryproxy/retryproxy/bench/internal/rig"
)

// engine is a redis-server of our own on loopback. Nothing of it is kept on disk.
type engine struct {
	bed     *rig.Bed
	program string
	addr    string
	child   *rig.Child
	client  *redis.Client // of this program; the proxies have their own
}

// silence is the client library's log: what it cannot reach is told by errors.
type silence struct{}

func (silence) Printf(context.Context, string, ...any) {}

func init() { redis.SetLogger(silence{}) }

// startEngine starts one.
func startEngine(bed *rig.Bed, program string) (*engine, error) {
	own, err := rig.OwnAddresses(1)
	if err != nil {
		return nil, err
	}
	e := &engine{bed: bed, program: program, addr: own[0]}
	e.client = redis.NewClient(&redis.Options{Addr: e.addr, PoolSize: 1, MaxRetries: -1, DialTimeout: 500 * time.Millisecond, ReadTimeout: 500 * time.Millisecond})
	bed.Later(func() { _ = e.client.Close() })
	return e, e.start()
}

// start starts the server, empty, where it was before.
func (e *engine) start() error {
	dir, err := e.bed.TempDir()
	if err != nil {
		return err
	}
	host, port, _ := strings.Cut(e.addr, ":")
	child, err := rig.Start(exec.Command(e.program, "--bind", host, "--port", port, "--dir", dir, "--save", "", "--appendonly", "no", "--maxmemory", "64mb"), nil)
	if err != nil {
		return fmt.Errorf("%w; on Debian: apt-get install redis-server", err)
	}
	e.child = child
	e.bed.Later(child.Kill)
	if err := child.AwaitPort(e.addr); err != nil {
		return fmt.Errorf("%s: %w; it said:\n%s", e.program, err, child.Lines())
	}
	return nil
}

func (e *engine) pause() error { return e.child.Signal(syscall.SIGSTOP) }
func (e *engine) goOn() error  { return e.child.Signal(syscall.SIGCONT) }

// sharing are the settings with which processes share by the engine.
func (e *engine) sharing(scope string) []string {
	return []string{"RETRYPROXY_SHARED=redis://" + e.addr + "/0?scope=" + scope}
}

// info reads the whole numbers of a section of INFO, by name.
func (e *engine) info(ctx context.Context, section string) (map[string]int, error) {
	text, err := e.client.Info(ctx, section).Result()
	if err != nil {
		return nil, err
	}
	return parseInfo(text), nil
}

// parseInfo reads lines name:number, and name:calls=number,... as commandstats has it.
func parseInfo(text string) map[string]int {
	values := map[string]int{}
	for line := range strings.SplitSeq(text, "\r\n") {
		name, value, ok := strings.Cut(line, ":")
		if !ok {
			continue
		}
		value, _, _ = strings.Cut(strings.TrimPrefix(value, "calls="), ",")
		if n, err := strconv.Atoi(value); err == nil {
			values[name] = n
		}
	}
	return values
}

// awaitListeners waits until n processes of one scope listen to what others tell.
func (e *engine) awaitListeners(ctx context.Context, n int) error {
	return rig.Await(ctx, fmt.Sprintf("%d processes listening at the engine", n), 15*time.Second, func() bool {
		have, err := e.listeners(ctx)
		return err == nil && have >= int64(n)
	})
}

// awaitChannels waits until somebody listens on n channels.
func (e *engine) awaitChannels(ctx context.Context, n int) error {
	return rig.Await(ctx, fmt.Sprintf("%d channels of the engine listened to", n), 15*time.Second, func() bool {
		channels, err := e.client.PubSubChannels(ctx, "*").Result()
		return err == nil && len(channels) >= n
	})
}

// listeners are the subscriptions to the channel that has fewest.
func (e *engine) listeners(ctx context.Context) (int64, error) {
	channels, err := e.client.PubSubChannels(ctx, "*").Result()
	if err != nil {
		return 0, err
	}
	counts, err := e.client.PubSubNumSub(ctx, channels...).Result()
	if err != nil || len(counts) == 0 {
		return 0, err
	}
	return slices.Min(slices.Collect(maps.Values(counts))), nil
}

// count counts what the engine was asked, second by second, until ctx ends. While it does not
// answer, nothing is counted.
func (e *engine) count(ctx context.Context, line *rig.Timeline) {
	for before := -1; ctx.Err() == nil; rig.Sleep(ctx, time.Second) {
		stats, err := e.info(ctx, "stats")
		now, ok := stats["total_commands_processed"]
		if err != nil || !ok {
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

// stock is what the engine keeps.
type stock struct {
	Keys    int            `json:"keys"`
	Forever int            `json:"without_expiry"`
	Bytes   map[string]int `json:"bytes"` // MEMORY USAGE by key, of the first hundred
}

// mostKeys is how many keys are looked at.
const mostKeys = 10_000

func (e *engine) stock(ctx context.Context) (*stock, error) {
	s := &stock{Bytes: map[string]int{}}
	for keys := e.client.Scan(ctx, 0, "*", 1000).Iterator(); keys.Next(ctx) && s.Keys < mostKeys; {
		bytes, err := e.client.MemoryUsage(ctx, keys.Val()).Result()
		if err == redis.Nil { // over since
			continue
		}
		if err != nil {
			return nil, err
		}
		left, err := e.client.TTL(ctx, keys.Val()).Result()
		if err != nil {
			return nil, err
		}
		if left == -1 { // as TTL says it of a key without
			s.Forever++
		}
		if s.Keys++; s.Keys <= 100 {
			s.Bytes[keys.Val()] = int(bytes)
		}
	}
	return s, nil
}
