package main

import (
	"context"
	"fmt"
	"maps"
	"net"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/retryproxy/retryproxy/bench/internal/httpclient"
	rig "github.com/retryproxy/retryproxy/bench/internal/oldrig"
	"github.com/retryproxy/retryproxy/bench/internal/process"
)

// engine is a redis-server of our own on loopback. Nothing of it is kept on disk.
type engine struct {
	program string
	addr    string
	dir     string
	child   *rig.Process
	client  *redis.Client // of this program; the proxies have their own
}

// silence is the client library's log: what it cannot reach is told by errors.
type silence struct{}

func (silence) Printf(context.Context, string, ...any) {}

func init() { redis.SetLogger(silence{}) }

// startEngine starts one on a free port.
func startEngine(program string) (*engine, error) {
	free, err := process.OwnAddresses(1)
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "fleet")
	if err != nil {
		return nil, err
	}
	e := &engine{program: program, addr: free[0], dir: dir}
	e.client = redis.NewClient(&redis.Options{Addr: e.addr, PoolSize: 1, MaxRetries: -1, DialTimeout: 500 * time.Millisecond, ReadTimeout: 500 * time.Millisecond})
	if err := e.start(); err != nil {
		e.end()
		return nil, err
	}
	return e, nil
}

// start starts the server, empty, where it was before.
func (e *engine) start() error {
	host, port, err := net.SplitHostPort(e.addr)
	if err != nil {
		return err
	}
	cmd := exec.Command(e.program, "--bind", host, "--port", port, "--dir", e.dir, "--save", "", "--appendonly", "no", "--maxmemory", "64mb")
	child, err := process.Start(cmd, nil)
	if err != nil {
		return fmt.Errorf("%w; on Debian: apt-get install redis-server", err)
	}
	e.child = &rig.Process{Child: child}
	if err := e.child.AwaitPort(e.addr); err != nil {
		return fmt.Errorf("%s: %w; it said:\n%s", e.program, err, e.child.Lines())
	}
	return nil
}

func (e *engine) end() {
	_ = e.client.Close()
	if e.child != nil {
		e.child.Kill()
	}
	_ = os.RemoveAll(e.dir)
}

// What can happen to it.
func (e *engine) flush(ctx context.Context) error { return e.client.FlushAll(ctx).Err() }
func (e *engine) pause() error                    { return e.child.Signal(syscall.SIGSTOP) }
func (e *engine) goOn() error                     { return e.child.Signal(syscall.SIGCONT) }
func (e *engine) kill()                           { e.child.Kill() }

// cpu is the time that it has run so far.
func (e *engine) cpu() (time.Duration, error) { return e.child.CPU() }

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
	return await(ctx, n, "processes listen at the engine", e.listeners)
}

// awaitChannels waits until somebody listens on n channels.
func (e *engine) awaitChannels(ctx context.Context, n int) error {
	return await(ctx, n, "channels of the engine are listened to", func(ctx context.Context) (int64, error) {
		channels, err := e.client.PubSubChannels(ctx, "*").Result()
		return int64(len(channels)), err
	})
}

// await waits until there are n.
func await(ctx context.Context, n int, what string, count func(context.Context) (int64, error)) error {
	for end := time.Now().Add(15 * time.Second); ; {
		have, err := count(ctx)
		if err == nil && have >= int64(n) {
			return nil
		}
		if time.Now().After(end) || !httpclient.Sleep(ctx, 50*time.Millisecond) {
			return fmt.Errorf("%d of %d %s (%v)", have, n, what, err)
		}
	}
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

// count adds what the engine was asked since the last time, second by second,
// until ctx ends. While it does not answer, nothing is added.
func (e *engine) count(ctx context.Context, r *record) {
	before := -1
	for {
		stats, err := e.info(ctx, "stats")
		now, ok := stats["total_commands_processed"]
		switch {
		case err != nil || !ok: // asked again below
		case before < 0:
			before = now
		default:
			if now < before { // started again
				before = 0
			}
			r.commands(max(0, now-before-1)) // one was ours
			before = now
		}
		if !httpclient.Sleep(ctx, time.Second) {
			return
		}
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
