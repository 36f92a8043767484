package fleet

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
	"go.uber.org/zap"

	"github.com/retryproxy/retryproxy/fleet/engine"
	"github.com/retryproxy/retryproxy/proxy/certs"
)

// link is the connection to the engine and its health. It is safe for concurrent use.
type link struct {
	client redis.UniversalClient
	log    *zap.Logger
	name   string

	responding             atomic.Bool               // the engine responds
	backAt                 atomic.Pointer[time.Time] // when it last resumed responding; nil: it was never lost
	commands, errors, lost atomic.Uint64

	mu         sync.Mutex // guards the fields below, and the order of log lines
	failed     int        // consecutive failed calls
	loggedLost bool       // the loss was logged
	since      time.Time  // when it stopped responding

	wrongType sync.Once // logs a key of another type
}

// Timeouts of the engine. Only background goroutines wait for it, so they are long compared
// with its usual response times, and short enough to detect soon that it is gone.
const (
	dialTimeout = time.Second
	callTimeout = 500 * time.Millisecond
)

const (
	// connections to the engine, or to each node of a cluster.
	connections = 4
	// leasesAtOnce leaves one connection for everything else. A call's timeout includes the
	// wait for a connection. So more calls than connections would time out by themselves,
	// and the engine would seem not to respond.
	leasesAtOnce = connections - 1
)

// failuresToLose is the number of consecutive failed calls after which the engine counts as
// lost: a single failure may be a short delay.
const failuresToLose = 2

func newLink(o *Options) (*link, error) {
	password, err := passwordFrom(o.Engine.PasswordFile)
	if err != nil {
		return nil, err
	}
	secure, err := tlsFor(o)
	if err != nil {
		return nil, err
	}
	l := &link{log: o.Log, name: o.Engine.Name()}
	if l.log == nil {
		l.log = zap.NewNop()
	}
	redis.SetLogger(silentLogger{})
	l.client = dial(&o.Engine, &redis.UniversalOptions{
		Addrs: o.Engine.Addrs, MasterName: o.Engine.Master, DB: o.Engine.DB, TLSConfig: secure,
		CredentialsProviderContext: func(context.Context) (string, string, error) {
			p, err := password()
			return o.Engine.User, p, err
		},
		DialTimeout: dialTimeout, ReadTimeout: callTimeout, WriteTimeout: callTimeout, ContextTimeoutEnabled: true,
		MaxRetries: -1, DialerRetries: 1, // callers repeat their calls
		PoolSize: connections, PipelinePoolSize: -1, ReadBufferSize: 4 << 10, WriteBufferSize: 4 << 10,
		DisableIdentity:          true,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
	return l, nil
}

func dial(e *engine.Engine, o *redis.UniversalOptions) redis.UniversalClient {
	switch e.Kind {
	case engine.Sentinel:
		return redis.NewFailoverClient(o.Failover())
	case engine.Cluster:
		return redis.NewClusterClient(o.Cluster())
	}
	simple := o.Simple()
	simple.Network, simple.Addr = e.Network, e.Addrs[0]
	return redis.NewClient(simple)
}

// passwordFrom returns a function that reads the password from the file each time, since it
// may be rotated. It returns an error if the file is not readable now.
func passwordFrom(file string) (func() (string, error), error) {
	if file == "" {
		return func() (string, error) { return "", nil }, nil
	}
	read := func() (string, error) {
		b, err := os.ReadFile(file)
		if err != nil {
			return "", fmt.Errorf("the password: %w", err)
		}
		p := strings.TrimRight(string(b), "\r\n")
		if p == "" {
			return "", fmt.Errorf("the password: %s is empty", file)
		}
		return p, nil
	}
	_, err := read()
	return read, err
}

// tlsFor returns the TLS configuration, nil without TLS. For several addresses the client
// sets the host name.
func tlsFor(o *Options) (*tls.Config, error) {
	if !o.Engine.TLS {
		return nil, nil
	}
	c := &tls.Config{MinVersion: tls.VersionTLS12}
	if o.Engine.Kind == engine.Single {
		c.ServerName, _, _ = net.SplitHostPort(o.Engine.Addrs[0])
	}
	var err error
	if o.Engine.CA != "" {
		if c.RootCAs, err = certs.Authorities(o.Engine.CA); err != nil {
			return nil, err
		}
	}
	if o.Engine.Cert == "" {
		return c, nil
	}
	pair := func() (*tls.Certificate, error) {
		p, err := certs.Pair(o.Engine.Cert, "")
		return &p, err
	}
	c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return pair() }
	_, err = pair()
	return c, err
}

// do makes one call, of one command or one batch, within callTimeout.
func (l *link) do(ctx context.Context, call func(ctx context.Context) error) error {
	within, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	l.commands.Add(1)
	err := call(within)
	if err != nil && ctx.Err() == nil {
		l.errors.Add(1)
	}
	return err
}

// run runs a script, and records whether the engine is healthy. Scripts write, so they also
// fail if the engine is full or has become a replica. The keys of one call belong to one
// slot of a cluster.
func (l *link) run(ctx context.Context, s *redis.Script, keys []string, args ...any) (reply any, err error) {
	err = l.do(ctx, func(ctx context.Context) error {
		reply, err = s.Run(ctx, l.client, keys, args...).Result()
		return err
	})
	switch {
	case ctx.Err() != nil:
	case isWrongType(err):
		l.logWrongType(keys, err)
		l.recordResult(nil) // the engine responds
	default:
		l.recordResult(err)
	}
	return reply, err
}

// isWrongType reports whether a key has a value of another type than ours, because another
// program uses its name. Then the state of that key is not shared; everything else is.
func isWrongType(err error) bool {
	var answer redis.Error
	return errors.As(err, &answer) && strings.Contains(answer.Error(), "WRONGTYPE")
}

// logWrongType logs the first key of another type.
func (l *link) logWrongType(keys []string, err error) {
	l.wrongType.Do(func() {
		l.log.Warn("a key of the shared engine has a value of another type; what this key should hold is not shared",
			zap.String("engine", l.name), zap.Strings("keys", keys), zap.Error(err))
	})
}

// number runs a script that replies with a whole number.
func (l *link) number(ctx context.Context, s *redis.Script, keys []string, args ...any) (int64, error) {
	reply, err := l.run(ctx, s, keys, args...)
	n, ok := reply.(int64)
	if err == nil && !ok {
		l.errors.Add(1)
		return 0, errReply
	}
	return n, err
}

var errReply = errors.New("unexpected reply of the shared engine to a script of retryproxy")

// up reports whether the engine responds.
func (l *link) up() bool { return l.responding.Load() }

// allReconnected reports whether the engine has responded for long enough that every
// process has reconnected. Otherwise the first ones would use all shared slots, in addition
// to the shares that the others still use.
func (l *link) allReconnected() bool {
	at := l.backAt.Load()
	return l.up() && (at == nil || time.Since(*at) > rejoinTime)
}

// rejoinTime is more than a heartbeat interval plus the timeout of a call.
const rejoinTime = 2 * time.Second

// recordResult records the result of a call. It logs once when the engine is lost and once when it
// is back.
func (l *link) recordResult(err error) {
	if err == nil && l.responding.Load() {
		l.mu.Lock()
		l.failed = 0
		l.mu.Unlock()
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if err != nil {
		l.failed++
		if l.failed >= failuresToLose {
			l.lose(err)
		}
		return
	}
	l.failed = 0
	if l.lost.Load() > 0 {
		l.backAt.Store(new(time.Now()))
	}
	l.responding.Store(true)
	fields := []zap.Field{zap.String("engine", l.name)}
	if !l.since.IsZero() {
		fields = append(fields, zap.Duration("after_seconds", time.Since(l.since)))
	}
	l.loggedLost, l.since = false, time.Time{}
	l.log.Info("sharing with the fleet", fields...)
}

// lose marks the engine as lost. It requires mu.
func (l *link) lose(err error) {
	if l.responding.Swap(false) {
		l.lost.Add(1)
	}
	if l.loggedLost {
		return
	}
	l.loggedLost, l.since = true, time.Now()
	l.log.Warn("the shared engine does not respond; each process continues with its own state until it does", zap.String("engine", l.name), zap.Error(err))
}

// silentLogger drops the client's log lines; link logs what matters.
type silentLogger struct{}

func (silentLogger) Printf(context.Context, string, ...any) {}
