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
	{name: "cut uploads beside other streams", conns: 1, bound: oneConnection, why: "a connection with 128 requests", prepare: cutUploads},
}

const oneConnection = atEase + perConn + atOnce*perStream

// workTime is how long the upstream takes for each request of an attacker.
const workTime = time.Second

// premature counts the requests that an attacker begins at its upstream. end is how each of them ends at once.
func premature(name string, upload bool, end func(f *frames, id uint32) error) attack {
	return attack{name: name, conns: 1, bound: oneConnection, why: "a connection with 128 requests", prepare: func(st *stage) error {
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

const (
	cutPerSecond = 950
	cutPerAsk    = 30
	// lateAsks are those that were in flight when the attack ended.
	lateAsks = cutPerSecond / cutPerAsk / 4
)

// cutUploads cuts cutPerSecond uploads and asks for something else now and then, on one connection.
func cutUploads(st *stage) error {
	const asked, answered, cut = "asked", "answered", "cut"
	one := func(f *frames) error {
		id, err := f.begin(f.block("POST", "/deaf", "content-length", "1000"), false)
		if err == nil {
			err = f.WriteData(id, false, []byte("part"))
		}
		if err == nil {
			err = f.WriteRSTStream(id, http2.ErrCodeCancel)
		}
		if err == nil && st.Counted(cut)%cutPerAsk == 0 {
			st.Count(asked, 1)
			_, err = f.begin(f.block("GET", "/ok"), true)
		}
		return err
	}
	hear := func(frame http2.Frame) {
		switch frame := frame.(type) {
		case *http2.MetaHeadersFrame:
			if frame.PseudoValue("status") == "200" {
				st.Count(answered, 1)
			}
		case *http2.GoAwayFrame:
			st.Add("told to go away: %v", frame.ErrCode)
		}
	}
	st.strike = func(s *strike) error {
		began := time.Now()
		err := script{every: time.Millisecond, hear: hear, again: func(f *frames) error {
			for due := int64(time.Since(began).Seconds() * cutPerSecond); st.Counted(cut) < due; st.Count(cut, 1) {
				if err := one(f); err != nil {
					return err
				}
			}
			return nil
		}}.strike(s)
		if err != nil && s.Err() == nil {
			st.Add("the connection was ended: %v", err)
		}
		return err
	}
	st.judge = func(*rig.Proxy) string {
		if st.Counted(answered) < st.Counted(asked)-lateAsks {
			st.Add("%d of %d other requests on the connection were answered", st.Counted(answered), st.Counted(asked))
		}
		return fmt.Sprintf("%d uploads cut, %d of %d other requests on the connection answered", st.Counted(cut), st.Counted(answered), st.Counted(asked))
	}
	return nil
}
