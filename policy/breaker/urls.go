package breaker

import (
	"sync/atomic"
	"time"

	"github.com/retryproxy/retryproxy/policy/backoff"
)

// urls remembers which URLs were answered lately, and which are silent. Evidence about one
// URL judges that URL: a probe goes to one that was answered lately, and requests of a
// silent one never take the place of others. Its memory is bounded. With a new URL for each
// request all of them are unknown, and treated alike.
type urls struct {
	sampleAt atomic.Int64   // when the URL of a response is recorded next, on the fast path
	answered [urlMemory]url // at: the latest response
	pending  [urlMemory]url // at: the first request since the latest response to this URL
	trialEnd time.Duration  // a request of a known URL is in flight beyond the window until then
}

type url struct {
	key  uint32
	at   time.Duration
	sent time.Duration // of pending: when its latest request was sent
}

const (
	// urlMemory is the number of URLs of each kind. Two silent ones judge the upstream; the
	// others leave room for those of clients that come back.
	urlMemory = 8
	// answerCounts is how long a response is evidence for its URL: as long as people pause.
	answerCounts = time.Minute
	// silentEvery is the time between two requests of a silent URL while the window binds.
	silentEvery = 500 * time.Millisecond
)

// trust is what is known of a URL.
type trust uint8

const (
	silent  trust = iota // a request is overdue, although the window was open for it
	unknown              // never seen, or forgotten
	known                // answered lately
)

// trust returns what is known of a URL at now, if requests are overdue at that age.
func (u *urls) trust(now, overdue time.Duration, key uint32) trust {
	if key == 0 {
		return unknown
	}
	if s := find(&u.pending, key); s != nil && now-s.at >= overdue {
		return silent
	}
	if s := find(&u.answered, key); s != nil && now-s.at <= answerCounts {
		return known
	}
	return unknown
}

// turn returns when a request of a silent URL may be sent beside the window. Each of them has its own
// turns, however many requests of others wait. With key 0 it returns when the first one has its turn.
func (u *urls) turn(now, overdue time.Duration, key uint32) time.Duration {
	at := backoff.Forever
	for _, s := range &u.pending {
		if s.key != 0 && (key == 0 || s.key == key) && now-s.at >= overdue {
			at = min(at, s.sent+silentEvery)
		}
	}
	return at
}

// count returns the number of silent URLs, and of those that were answered lately and are
// not silent.
func (u *urls) count(now, overdue time.Duration) (silents, knowns int) {
	for _, s := range &u.pending {
		if s.key != 0 && now-s.at >= overdue {
			silents++
		}
	}
	for _, s := range &u.answered {
		if s.key != 0 && u.trust(now, overdue, s.key) == known {
			knowns++
		}
	}
	return silents, knowns
}

// anyDoubtful reports whether a request is in flight whose URL is silent or was not answered
// lately. It may hold a place for long.
func (u *urls) anyDoubtful(now, overdue time.Duration) bool {
	for _, s := range &u.pending {
		if s.key != 0 && u.trust(now, overdue, s.key) != known {
			return true
		}
	}
	return false
}

// otherAnswers reports whether another URL than that of key was answered in the last seconds, and did
// not fail since.
func (u *urls) otherAnswers(now time.Duration, key uint32) bool {
	for _, s := range &u.answered {
		if s.key != 0 && now-s.at <= 2*evidenceWindow && s.key != key {
			return true
		}
	}
	return false
}

// begin forgets which URLs were silent: the window moves for another reason now.
func (u *urls) begin() {
	u.pending, u.trialEnd = [urlMemory]url{}, 0
}

// sent records that a request was sent while the window binds.
func (u *urls) sent(now time.Duration, key uint32) {
	if s := find(&u.pending, key); s != nil {
		s.sent = now
	} else if key != 0 {
		replaceOldest(&u.pending, url{key, now, now}, now-answerCounts)
	}
}

// responded records a good response.
func (u *urls) responded(now time.Duration, key uint32) {
	if key == 0 {
		return
	}
	u.sampleAt.Store(int64(now + evidenceSlotTime)) // which bounds the cost on the fast path
	u.trialEnd = 0
	u.forgetPending(key)
	if s := find(&u.answered, key); s != nil {
		s.at = now
		return
	}
	replaceOldest(&u.answered, url{key: key, at: now}, now)
}

// failed records that a request of a URL failed: it is not silent, and speaks for nobody.
func (u *urls) failed(key uint32) {
	u.forgetPending(key)
	if s := find(&u.answered, key); s != nil {
		*s = url{}
	}
}

// forgetPending forgets that a request was sent.
func (u *urls) forgetPending(key uint32) {
	if s := find(&u.pending, key); s != nil {
		*s = url{}
	}
}

func find(in *[urlMemory]url, key uint32) *url {
	for i := range in {
		if in[i].key == key && key != 0 {
			return &in[i]
		}
	}
	return nil
}

// replaceOldest stores n in a free entry, or in the oldest one if that is older than before.
func replaceOldest(in *[urlMemory]url, n url, before time.Duration) {
	oldest := &in[0]
	for i := range in {
		if s := &in[i]; s.key == 0 {
			*s = n
			return
		} else if s.at < oldest.at {
			oldest = s
		}
	}
	if oldest.at <= before {
		*oldest = n
	}
}
