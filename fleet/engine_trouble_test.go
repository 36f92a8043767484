package fleet

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/retryproxy/retryproxy/fleet/engine"
	"github.com/retryproxy/retryproxy/fleet/enginetest"
	"github.com/retryproxy/retryproxy/policy/budget"
	"github.com/retryproxy/retryproxy/policy/ratelimit"
)

// Whatever happens to the engine, the process logs it once, continues, logs the recovery once, and
// shares again.
func TestTroubleWithTheEngine(t *testing.T) {
	for _, tc := range []struct {
		name       string
		begin, end func(s *enginetest.Server)
		says       string
	}{
		{"killed", (*enginetest.Server).Kill, (*enginetest.Server).Restart, "connect"},
		{"paused", (*enginetest.Server).Pause, (*enginetest.Server).Continue, "timeout|deadline"},
		{"out of memory", func(s *enginetest.Server) {
			s.Do("CONFIG", "SET", "maxmemory-policy", "noeviction")
			s.Do("CONFIG", "SET", "maxmemory", "1")
		}, func(s *enginetest.Server) { s.Do("CONFIG", "SET", "maxmemory", "0") }, "OOM"},
		{"replica now", func(s *enginetest.Server) { s.Do("REPLICAOF", "127.0.0.1", "1") }, func(s *enginetest.Server) { s.Do("REPLICAOF", "NO", "ONE") }, "READONLY"},
		{"user gone", func(s *enginetest.Server) {
			s.Do("CLIENT", "NO-EVICT", "ON")
			s.Do("ACL", "SETUSER", "default", "-evalsha", "-eval")
		}, func(s *enginetest.Server) { s.Do("ACL", "SETUSER", "default", "+@all") }, "NOPERM"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			s := enginetest.Start(t)
			a, b := joined(t, s), joined(t, s)
			tc.begin(s)
			eventually(t, "lost", func() bool { return !a.Stats().Up && !b.Stats().Up })
			began := time.Now()
			for range 3 * pauseBuffer {
				a.RateLimitPauseBegan(7, time.Minute)
			}
			if d := time.Since(began); d > time.Second {
				t.Errorf("telling took %v while the engine did not answer", d)
			}
			time.Sleep(1500 * time.Millisecond) // more calls fail, without a log line
			tc.end(s)
			a.awaitListening()
			b.awaitListening()
			a.RateLimitPauseBegan(8, time.Minute)
			eventually(t, "sharing again", func() bool { return b.pause(8) > 0 })
			for _, p := range []*process{a, b} {
				if p.lines(lineLost) != 1 || p.lines(lineUp) != 2 || p.Stats().Lost != 1 {
					t.Errorf("said %d times that the engine was lost and %d times that it answered; counted %d", p.lines(lineLost), p.lines(lineUp), p.Stats().Lost)
				}
				if e := p.logs.FilterMessage(lineLost).All()[0].ContextMap()["error"].(string); !regexp.MustCompile(tc.says).MatchString(e) {
					t.Errorf("the reason given is %q", e)
				}
			}
		})
	}
}

// If another program uses one of our keys, only that key is not shared: the engine is not lost, and
// one line is logged.
func TestAKeyOfAnotherTypeIsNotALostEngine(t *testing.T) {
	s := enginetest.Start(t)
	a := joined(t, s)
	key := a.pausesKey()
	s.Do("DEL", key)
	s.Do("LPUSH", key, "x")
	for n := range uint64(3 * failuresToLose) {
		had := a.Stats().Errors
		a.RateLimitPauseBegan(n, time.Minute)
		eventually(t, "a call fails", func() bool { return a.Stats().Errors > had })
	}
	wrong := a.lines("a key of the shared engine has a value of another type; what this key should hold is not shared")
	if st := a.Stats(); !st.Up || st.Lost != 0 || a.lines(lineLost) != 0 || wrong != 1 {
		t.Errorf("up %v, lost %d times, said %d times that it was lost and %d times that a key is wrong", st.Up, st.Lost, a.lines(lineLost), wrong)
	}
}

// All state is gone, including the scripts, and nobody notices.
func TestTheEngineFlushed(t *testing.T) {
	s := enginetest.Start(t)
	a, b := joined(t, s), joined(t, s)
	a.RateLimitPauseBegan(7, time.Hour)
	eventually(t, "learnt", func() bool { return b.pause(7) > 0 })
	s.Do("FLUSHALL")
	s.Do("SCRIPT", "FLUSH")
	a.RateLimitPauseBegan(8, time.Minute)
	eventually(t, "learnt", func() bool { return b.pause(8) > 0 })
	eventually(t, "known to each other again", func() bool { return s.Do("ZCARD", a.membersKey()) == int64(2) })
	if a.lines(lineLost) != 0 || a.Stats().Lost != 0 {
		t.Error("taken for lost")
	}
}

func TestAnEngineThatIsNotThereYet(t *testing.T) {
	s := enginetest.Start(t)
	s.Kill()
	p := join(t, s)
	eventually(t, "said", func() bool { return p.lines(lineLost) == 1 })
	s.Restart()
	p.awaitListening()
	if p.lines(lineUp) != 1 || p.Stats().Lost != 0 {
		t.Errorf("%d lines, lost %d times; it never was there before", p.lines(lineUp), p.Stats().Lost)
	}
}

func TestMembersComeAndGo(t *testing.T) {
	s := enginetest.Start(t)
	a, b := joined(t, s), joined(t, s)
	eventually(t, "both", func() bool { return a.Stats().Processes == 2 })
	b.stop()
	eventually(t, "one", func() bool { return a.Stats().Processes == 1 })
	s.Do("ZADD", a.membersKey(), "9e15", "from the future", "1", "long gone")
	time.Sleep(heartbeatInterval + heartbeatInterval/2)
	if n := a.Stats().Processes; n != 1 {
		t.Errorf("%d members, want one", n)
	}
}

// A hanging engine does not delay the shutdown.
func TestTheEndDoesNotWaitForTheEngine(t *testing.T) {
	s := enginetest.Start(t)
	p := joined(t, s)
	s.Pause()
	defer s.Continue()
	p.RateLimitPauseBegan(7, time.Minute)
	began := time.Now()
	p.stop()
	if d := time.Since(began); d > 5*leaveTimeout {
		t.Errorf("it took %v", d)
	}
}

// The engine stores only hashes and numbers, each with an expiry, and no name of a scope, route or
// upstream.
func TestWhatIsKeptAtTheEngine(t *testing.T) {
	s := enginetest.Start(t)
	p := joinWith(t, Options{Engine: scoped(s.Engine(), "secret-project")})
	p.awaitListening()
	p.RateLimitPauseBegan(0xfedcba9876543210, time.Minute)
	eventually(t, "told", func() bool { return p.Stats().PausesSent == 1 })
	p.requestLease(ratelimit.LeaseRequest{Key: 0x1234, Gap: time.Second, Want: 1})
	p.settleOne(budget.Report{Key: 0x5678, Config: budget.Default(), Requests: 10})
	keys := s.Do("KEYS", "*").([]any)
	if len(keys) != 4 {
		t.Errorf("keys %v", keys)
	}
	for _, k := range keys {
		key := k.(string)
		if !regexp.MustCompile(`^retryproxy:[0-9a-f]{16}:[a-z]+(:[0-9a-f]+)?$`).MatchString(key) {
			t.Errorf("key %s", key)
		}
		if left := s.Do("PTTL", key).(int64); left <= 0 || left > 3_600_000 {
			t.Errorf("%s expires in %d ms", key, left)
		}
		var held []any
		switch s.Do("TYPE", key) {
		case "zset":
			held = s.Do("ZRANGE", key, 0, -1).([]any)
		case "hash":
			for _, v := range s.Do("HGETALL", key).(map[any]any) {
				held = append(held, v)
			}
		default:
			held = []any{s.Do("GET", key)}
		}
		for _, m := range held {
			if !regexp.MustCompile(`^-?[0-9a-f.]+( [0-9.]+)?$`).MatchString(m.(string)) {
				t.Errorf("%s holds %q", key, m)
			}
		}
		t.Logf("%s takes %d bytes", key, s.Do("MEMORY", "USAGE", key))
	}
}

// leastRights returns the rights that docs/how-to/fleet.md requires.
func leastRights(t *testing.T) []any {
	t.Helper()
	note, err := os.ReadFile("../docs/how-to/fleet.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(note), "An ACL for it: `")
	rights, _, _ := strings.Cut(rest, "`")
	var all []any
	for r := range strings.FieldsSeq(rights) {
		all = append(all, r)
	}
	return all
}

func TestPasswordFromAFileAndTheLeastRights(t *testing.T) {
	s := enginetest.Start(t)
	s.Do(append([]any{"ACL", "SETUSER", "app", "on", ">first"}, leastRights(t)...)...)
	file := filepath.Join(t.TempDir(), "password")
	write := func(text string) {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("wrong\n")
	e := s.Engine()
	e.User, e.PasswordFile = "app", file
	p := joinWith(t, Options{Engine: e})
	eventually(t, "refused", func() bool { return p.lines(lineLost) == 1 })
	if said := p.logs.All()[0].ContextMap()["error"].(string); !strings.Contains(said, "WRONGPASS") || strings.Contains(said, "wrong\n") {
		t.Errorf("said %q", said)
	}
	write("first\n")
	p.awaitListening()
	p.RateLimitPauseBegan(7, time.Minute)
	eventually(t, "told", func() bool { return p.Stats().PausesSent == 1 })
	if _, ok := p.requestLease(ratelimit.LeaseRequest{Key: 1, Gap: time.Second, Want: 1}); !ok {
		t.Error("no slot")
	}
	if _, ok := p.settleOne(budget.Report{Key: 1, Config: budget.Default()}); !ok {
		t.Error("no budget")
	}
	p.stop()
	log := s.Do("ACL", "LOG").([]any)
	for _, entry := range log {
		if text := fmt.Sprint(entry); !strings.Contains(text, "reason auth") && !strings.Contains(text, "reason:auth") {
			t.Errorf("refused: %s", text)
		}
	}
}

func TestFilesThatCannotBeRead(t *testing.T) {
	e := enginetest.Start(t).Engine()
	empty := filepath.Join(t.TempDir(), "empty")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for want, name := range map[string]func(e *engine.Engine){
		"no-password":  func(e *engine.Engine) { e.PasswordFile = "/no-password" },
		"is empty":     func(e *engine.Engine) { e.PasswordFile = empty },
		"no-authority": func(e *engine.Engine) { e.TLS, e.CA = true, "/no-authority" },
		"PEM":          func(e *engine.Engine) { e.TLS, e.CA = true, empty },
		"no-cert":      func(e *engine.Engine) { e.TLS, e.Cert = true, "/no-cert" },
	} {
		wrong := e
		name(&wrong)
		if _, err := New(Options{Engine: wrong}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q in it", err, want)
		}
	}
}
