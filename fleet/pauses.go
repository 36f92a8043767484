package fleet

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/retryproxy/retryproxy/policy"
)

// pause is one that began here.
type pause struct {
	key   uint64
	lasts time.Duration
	at    time.Time
}

// Bounds of what is told: pauses that wait to be told, those of one call, and
// the least time between two calls, so that a key per client costs the engine
// a hundred calls a second and process, and not one for each 429.
const (
	pauseBuffer          = 1024
	pauseBatch           = 64
	pausePublishInterval = 10 * time.Millisecond
)

// RateLimitPauseBegan is for proxy.Config.RateLimitPauseBegan: it tells the others of a
// pause. It does not block.
func (f *Fleet) RateLimitPauseBegan(key uint64, lasts time.Duration) {
	select {
	case f.pauses <- pause{key, lasts, time.Now()}:
	default:
		f.pausesDropped.Add(1)
	}
}

func (f *Fleet) pausesKey() string     { return f.prefix + "pauses" }
func (f *Fleet) pausesChannel() string { return f.prefix + "paused" }

// publishPauses tells the others of pauses that began here, until ctx ends.
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

// publishPauseBatch tells the first and those that wait behind it. What could not be
// told is not kept: each process that meets the 429 learns it by itself.
func (f *Fleet) publishPauseBatch(ctx context.Context, first pause) {
	args := []any{f.pausesChannel(), f.member, policy.MaxRateLimitPauses}
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

// How long nothing may be heard on the channel before it is asked for a sign,
// and how long that may take.
const (
	pingAfter   = time.Second
	pongTimeout = 2 * time.Second
)

// listen hears what others tell, until ctx ends. Whatever goes wrong, it begins
// anew and reads first what was told meanwhile.
func (f *Fleet) listen(ctx context.Context, local Local) {
	for ctx.Err() == nil {
		_ = f.subscribe(ctx, local)
		sleep(ctx, spread(200*time.Millisecond))
	}
}

// subscribe is listen as long as nothing goes wrong. It subscribes before it reads
// what runs, so that nothing falls between the two.
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
		if message != nil && !f.listening.Load() { // the first thing heard is that we are listening
			if err := f.catchUp(ctx, local); err != nil {
				return err
			}
			f.listening.Store(true)
		}
	}
	return ctx.Err()
}

// catchUp learns what others told before we listened.
func (f *Fleet) catchUp(ctx context.Context, local Local) error {
	reply, err := f.link.run(ctx, activePausesScript, []string{f.pausesKey()}, policy.MaxRateLimitPauses)
	if err != nil {
		return err
	}
	text, _ := reply.(string)
	f.receivePauses(text, local)
	return nil
}

// receive reads a message: who tells, and what.
func (f *Fleet) receive(m *redis.Message, local Local) {
	who, what, _ := strings.Cut(m.Payload, " ")
	if who != f.member {
		f.receivePauses(what, local)
	}
}

// receivePauses reads pauses: key:microseconds, with spaces between. What is not of
// that form is counted and not believed, and what is too long the data path
// does not believe.
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

// longestPause is the most that RETRYPROXY_RATE_LIMIT_PAUSE_MAX can be.
const longestPause = 24 * time.Hour
