package fleet

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/retryproxy/retryproxy/policy/ratelimit"
)

// pause is a pause that began in this process.
type pause struct {
	key   uint64
	lasts time.Duration
	at    time.Time
}

// Limits of sending: pauses that wait to be sent, pauses per call, and the minimum time
// between two calls. So with a key per client, a process makes at most a hundred calls per
// second, not one per 429.
const (
	pauseBuffer          = 1024
	pauseBatch           = 64
	pausePublishInterval = 10 * time.Millisecond
)

// RateLimitPauseBegan is the function for proxy.Config.RateLimitPauseBegan: it sends a
// pause to the other processes. It does not block.
func (f *Fleet) RateLimitPauseBegan(key uint64, lasts time.Duration) {
	select {
	case f.pauses <- pause{key, lasts, time.Now()}:
	default:
		f.pausesDropped.Add(1)
	}
}

func (f *Fleet) pausesKey() string     { return f.prefix + "pauses" }
func (f *Fleet) pausesChannel() string { return f.prefix + "paused" }

// publishPauses sends pauses that began here to the other processes, until ctx ends.
func (f *Fleet) publishPauses(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case first := <-f.pauses:
			f.publishPauseBatch(ctx, first)
			sleep(ctx, pausePublishInterval)
		}
	}
}

// publishPauseBatch sends the first pause and those queued behind it. If that fails they
// are dropped: each process that gets the 429 learns of the pause by itself.
func (f *Fleet) publishPauseBatch(ctx context.Context, first pause) {
	args := []any{f.pausesChannel(), f.member, ratelimit.MaxPauses}
	n := uint64(0)
	for p, more := first, true; more; n++ {
		if left := p.lasts - time.Since(p.at); left > 0 {
			args = append(args, strconv.FormatUint(p.key, 16), left.Microseconds())
		}
		if n+1 == pauseBatch {
			more = false
			continue
		}
		select {
		case p = <-f.pauses:
		default:
			more = false
		}
	}
	if _, err := f.link.number(ctx, pausesScript, []string{f.pausesKey()}, args...); err != nil {
		f.pausesDropped.Add(n)
		return
	}
	f.pausesSent.Add(n)
}

// How long the channel may be silent before a ping is sent, and how long the response to it
// may take.
const (
	pingAfter   = time.Second
	pongTimeout = 2 * time.Second
)

// listen receives the pauses of other processes until ctx ends. After any error it
// subscribes again and first reads what it missed.
func (f *Fleet) listen(ctx context.Context, local Local) {
	for ctx.Err() == nil {
		_ = f.subscribe(ctx, local)
		sleep(ctx, spread(200*time.Millisecond))
	}
}

// subscribe is listen until the first error. It subscribes before it reads the active
// pauses, so that it misses none.
func (f *Fleet) subscribe(ctx context.Context, local Local) error {
	s := f.link.client.Subscribe(ctx)
	defer func() { _ = s.Close() }()
	defer context.AfterFunc(ctx, func() { _ = s.Close() })() // ends the wait for a message
	if err := f.link.do(ctx, func(ctx context.Context) error { return s.Subscribe(ctx, f.pausesChannel()) }); err != nil {
		return err
	}
	defer f.listening.Store(false)
	heard := time.Now()
	for ctx.Err() == nil {
		message, err := s.ReceiveTimeout(ctx, pingAfter)
		var quiet interface{ Timeout() bool }
		switch {
		case err == nil:
			heard = time.Now()
		case !errors.As(err, &quiet) || !quiet.Timeout() || time.Since(heard) > pongTimeout:
			return err
		default:
			err = f.link.do(ctx, func(ctx context.Context) error { return s.Ping(ctx) })
			if err != nil {
				return err
			}
		}
		if m, ok := message.(*redis.Message); ok {
			f.receive(m, local)
		}
		if message != nil && !f.listening.Load() { // the first message confirms the subscription
			if err := f.catchUp(ctx, local); err != nil {
				return err
			}
			f.listening.Store(true)
		}
	}
	return ctx.Err()
}

// catchUp reads the pauses that were sent before the subscription.
func (f *Fleet) catchUp(ctx context.Context, local Local) error {
	reply, err := f.link.run(ctx, activePausesScript, []string{f.pausesKey()}, ratelimit.MaxPauses)
	if err != nil {
		return err
	}
	text, _ := reply.(string)
	f.receivePauses(text, local)
	return nil
}

// receive parses a message: the sender and its pauses.
func (f *Fleet) receive(m *redis.Message, local Local) {
	who, what, _ := strings.Cut(m.Payload, " ")
	if who != f.member {
		f.receivePauses(what, local)
	}
}

// receivePauses parses pauses: key:microseconds, separated by spaces. It counts and ignores
// malformed ones. The data path caps those that are too long.
func (f *Fleet) receivePauses(pauses string, local Local) {
	if pauses == "" {
		return
	}
	for one := range strings.SplitSeq(pauses, " ") {
		k, l, _ := strings.Cut(one, ":")
		key, err := strconv.ParseUint(k, 16, 64)
		left, err2 := strconv.ParseInt(l, 10, 64)
		if err != nil || err2 != nil || left <= 0 || left > longestPause.Microseconds() {
			f.malformed.Add(1)
			continue
		}
		f.pausesReceived.Add(1)
		local.ApplyRateLimitPause(key, time.Duration(left)*time.Microsecond)
	}
}

// longestPause is the maximum of RETRYPROXY_RATE_LIMIT_PAUSE_MAX.
const longestPause = 24 * time.Hour
