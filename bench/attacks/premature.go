package main

import (
	"fmt"
	"net/http"
	"time"

	"golang.org/x/net/http2"

	"github.com/retryproxy/retryproxy/bench/internal/rig"
)

// prematureAttacks end requests as soon as they are begun. A client of HTTP/2 has
// atOnce requests at once, and each of these would take workTime: whoever makes the proxy
// begin more of them in a second than an honest client could has found a way around that.
var prematureAttacks = []attack{
	premature("rapid reset, seen from the upstream", false, func(f *frames, id uint32) error { return f.WriteRSTStream(id, http2.ErrCodeCancel) }),
	premature("MadeYouReset, windows of 0", false, func(f *frames, id uint32) error { return f.WriteWindowUpdate(id, 0) }),
	premature("MadeYouReset, windows that overflow", false, func(f *frames, id uint32) error { return f.WriteWindowUpdate(id, 1<<31-1) }),
	premature("MadeYouReset, DATA behind the end", false, func(f *frames, id uint32) error { return f.WriteData(id, false, []byte("x")) }),
	premature("MadeYouReset, dependent on itself", false, func(f *frames, id uint32) error {
		return f.WritePriority(id, http2.PriorityParam{StreamDep: id})
	}),
	premature("less than content-length", true, func(f *frames, id uint32) error { return f.WriteData(id, true, []byte("x")) }),
}

// workTime is how long the upstream takes for each request of an attacker.
const workTime = time.Second

// premature counts the requests that an attacker begins at its upstream. end is how each of them ends at once.
func premature(name string, upload bool, end func(f *frames, id uint32) error) attack {
	return attack{name: name, conns: 1, bound: atEase + perConn + atOnce*perStream, why: "a connection with 128 requests", prepare: func(st *stage) error {
		var since time.Time
		st.begin = func(*rig.Proxy) error { since = time.Now(); return nil }
		st.strike = script{again: func(f *frames) error {
			block := f.block("GET", "/work")
			if upload {
				block = f.block("POST", "/work", "content-length", "1000")
			}
			id, err := f.begin(block, !upload)
			if err != nil {
				return err
			}
			return end(f, id)
		}}.strike
		st.judge = func(*rig.Proxy) string {
			perSecond, honest := float64(st.Counted("begun"))/time.Since(since).Seconds(), atOnce/workTime.Seconds()
			if perSecond > honest {
				st.Add("%.0f requests a second were begun upstream, more than an honest client's %.0f", perSecond, honest)
			}
			return fmt.Sprintf("%.0f requests a second begun upstream, of %.0f that an honest client could have there", perSecond, honest)
		}
		return st.route("work", "/work", func(_ http.ResponseWriter, r *http.Request) {
			st.Count("begun", 1)
			select {
			case <-r.Context().Done():
			case <-time.After(workTime):
			}
		})
	}}
}
