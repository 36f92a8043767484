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

// link is the way to the engine and what is known of its health. Safe for
// concurrent use.
type link struct {
	client redis.UniversalClient
	log    *zap.Logger
	name   string

	responding             atomic.Bool  // the engine does
	backAt                 atomic.Int64 // when it last began to again, in Unix nanoseconds; 0: it was never lost
	commands, errors, lost atomic.Uint64

	mu         sync.Mutex // guards what follows, and the order of log lines
	failed     int        // calls in a row
	loggedLost bool       // that it does not answer, or ever did
	since      time.Time  // when it stopped to

	wrongKeys map[string]bool // of another type, which was told
}

// How long the engine is waited for. Nobody but the background waits, so they
// are long next to what an engine takes, and short enough to notice soon that
// it is gone.
const (
	dialTimeout = time.Second
	callTimeout = 500 * time.Millisecond
)

const (
	// connections to the engine, or to each node of a cluster.
	connections = 4
	// leasesAtOnce leave one of them to everything else. The time of a call runs while
	// it waits for a connection, so more calls than connections would time out by
	// themselves and be taken for an engine that does not answer.
	leasesAtOnce = connections - 1
)

// failuresToLose is how many calls in a row fail before the engine is taken for
// lost: a single one may be a slow moment.
const failuresToLose = 2

func newLink(o *Options) (*link, error) {
	password, err := passwordFrom(o.PasswordFile)
	if err != nil {
		return nil, err
	}
	secure, err := tlsFor(o)
	if err != nil {
		return nil, err
	}
	l := &link{log: o.Log, name: o.Engine.Name(), wrongKeys: map[string]bool{}}
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
		MaxRetries: -1, DialerRetries: 1, // who calls goes on calling
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

// passwordFrom gives what reads the password of a file, anew each time, since
// it may be rotated. The file has to be readable now.
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

// tlsFor is nil without TLS. The host's name is filled in by the client.
func tlsFor(o *Options) (*tls.Config, error) {
	if !o.Engine.TLS {
		return nil, nil
	}
	c := &tls.Config{MinVersion: tls.VersionTLS12}
	if o.Engine.Kind == engine.Single {
		c.ServerName, _, _ = net.SplitHostPort(o.Engine.Addrs[0])
	}
	var err error
	if o.CA != "" {
		if c.RootCAs, err = certs.Authorities(o.CA); err != nil {
			return nil, err
		}
	}
	if o.Cert == "" {
		return c, nil
	}
	pair := func() (*tls.Certificate, error) {
		p, err := tls.LoadX509KeyPair(o.Cert, o.Key)
		if err != nil {
			return nil, fmt.Errorf("certificate %s with key %s: %w", o.Cert, o.Key, err)
		}
		return &p, nil
	}
	c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return pair() }
	_, err = pair()
	return c, err
}

// do makes one call, of one command or one batch of them, within callTimeout.
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

// run runs a script, and takes note of how the engine fares: one that is full, or a
// replica now, still answers what writes nothing. Keys of one call belong to one
// slot of a cluster.
func (l *link) run(ctx context.Context, s *redis.Script, keys []string, args ...any) (reply any, err error) {
	err = l.do(ctx, func(ctx context.Context) error {
		reply, err = s.Run(ctx, l.client, keys, args...).Result()
		return err
	})
	switch {
	case ctx.Err() != nil:
	case isWrongType(err):
		l.wrongKey(keys, err)
		l.note(nil) // the engine answers
	default:
		l.note(err)
	}
	return reply, err
}

// isWrongType reports whether a key holds a value of another type than ours: somebody else
// uses its name. What is kept under it is not shared then; everything else is.
func isWrongType(err error) bool {
	var answer redis.Error
	return errors.As(err, &answer) && strings.Contains(answer.Error(), "WRONGTYPE")
}

// maxWrongKeys bounds how many are told of.
const maxWrongKeys = 100

// wrongKey logs a key of another type once.
func (l *link) wrongKey(keys []string, err error) {
	name := strings.Join(keys, " ")
	l.mu.Lock()
	told := l.wrongKeys[name] || len(l.wrongKeys) >= maxWrongKeys
	if !told {
		l.wrongKeys[name] = true
	}
	l.mu.Unlock()
	if !told {
		l.log.Warn("a key at the shared engine has a value of another type; what is kept under it is not shared", zap.String("engine", l.name), zap.String("key", name), zap.Error(err))
	}
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

var errReply = errors.New("the engine's reply has another form than the script gives it")

// up says whether the engine answers.
func (l *link) up() bool { return l.responding.Load() }

// allReconnected says whether the engine answers, and has for so long that whoever lost it
// has found it again. Those who find it first would otherwise have all that is
// shared, beside the shares that the others still use.
func (l *link) allReconnected() bool {
	return l.up() && time.Since(time.Unix(0, l.backAt.Load())) > rejoinTime
}

// rejoinTime is more than the time between two beats and a call that fails.
const rejoinTime = 2 * time.Second

// note takes in how a call ended, and says once when the engine is lost and once when
// it is back.
func (l *link) note(err error) {
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
		l.backAt.Store(time.Now().UnixNano())
	}
	l.responding.Store(true)
	fields := []zap.Field{zap.String("engine", l.name)}
	if !l.since.IsZero() {
		fields = append(fields, zap.Duration("after_seconds", time.Since(l.since)))
	}
	l.loggedLost, l.since = false, time.Time{}
	l.log.Info("sharing with the fleet", fields...)
}

// lose is called with mu held.
func (l *link) lose(err error) {
	if l.responding.Swap(false) {
		l.lost.Add(1)
	}
	if l.loggedLost {
		return
	}
	l.loggedLost, l.since = true, time.Now()
	l.log.Warn("the shared engine does not answer; each process goes on with its own state until it does", zap.String("engine", l.name), zap.Error(err))
}

// silentLogger keeps the client's own lines out of our log: what matters is said by
// link.
type silentLogger struct{}

func (silentLogger) Printf(context.Context, string, ...any) {}
