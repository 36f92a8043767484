package proxy

import (
	"sync"
	"sync/atomic"

	"github.com/retryproxy/retryproxy/proxy/http1"
	"github.com/retryproxy/retryproxy/proxy/internal/clock"
)

// uploadLimit bounds how many clients send bodies at once when slots are short, so that some are left for
// requests that need no body. It is safe for concurrent use.
type uploadLimit struct {
	most   int          // clients; 0: any number
	coming atomic.Int64 // admitted, but their bodies are not awaited yet: they wait for memory

	mu      sync.Mutex // guards all below
	seen    int        // bodies awaited when they were counted last, and those that have begun since
	counted clock.Instant
}

// begin reports whether there is room for one more body. count counts the bodies that are awaited now.
func (u *uploadLimit) begin(now clock.Instant, count func() int) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	if now.Sub(u.counted) >= evictEvery {
		u.seen, u.counted = count()+int(u.coming.Load()), now
	}
	if u.most > 0 && u.seen >= u.most {
		return false
	}
	u.seen++
	return true
}

// fewCome reports whether those that were admitted and are not charged yet are few, so that they do not
// take what is left for others.
func (u *uploadLimit) fewCome() bool { return u.most == 0 || int(u.coming.Load()) <= u.most/4 }

// admitUpload reports whether the client may send its request's body. While slots are plentiful,
// every client may. If it may, uploads.coming counts it until the caller takes it back.
func (t *clients) admitUpload() bool {
	may := t.slots.Plentiful() && t.uploads.fewCome() || t.uploads.begin(t.clock.Now(), t.bodiesAwaited) || t.evict((*victim).isUpload)
	if may {
		t.uploads.coming.Add(1)
	}
	return may
}

// bodiesAwaited counts the requests of which the proxy awaits a part of the body.
func (t *clients) bodiesAwaited() (n int) {
	t.connected.each(func(c *conn) {
		if c.x.Upload().IsAwaited() {
			n++
		}
	})
	return n
}

// awaitsBody reports whether a part of the request's body may still have to come.
func (c *conn) awaitsBody() bool { return isAwaited(c.client.Request().Body, c.client.Buffered()) }

// isAwaited reports whether a part of a body may still have to come if that many bytes follow its headers.
func isAwaited(f http1.Framing, arrived int) bool {
	return !f.Empty() && !(f.Length > 0 && int64(arrived) >= f.Length)
}
