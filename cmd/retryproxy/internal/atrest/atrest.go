// Package atrest gives back what only the start of the process needed, or a wave
// of work.
//
// A start runs the initialisation of every package and reads every setting, and
// so brings most of the program's file into the process's memory, code as well
// as tables: the kernel maps what lies around a touched page too. Call
// Settle in a goroutine once the process serves, and LetGo whenever it comes to rest.
package atrest

import (
	"bytes"
	"context"
	"strconv"
	"time"
)

// After is how long after the start things are settled: what serving needs has
// been used by then.
const After = 2 * time.Second

// Settle waits until After has passed, or ctx ends, which makes it do nothing. Then
// it does LetGo.
func Settle(ctx context.Context) {
	timer := time.NewTimer(After)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return
	case <-timer.C:
	}
	LetGo()
}

// span is a part of the address space.
type span struct{ start, end uint64 }

// untouched finds the mappings of the file exe that cannot be written to and hold no
// page that was changed, in the text of /proc/PID/smaps. A changed page would
// be lost: one that was relocated at the start, or has a breakpoint.
func untouched(smaps []byte, exe string) (all []span) {
	var now span
	ours, changed := false, true
	for line := range bytes.Lines(smaps) {
		line = bytes.TrimSuffix(line, []byte("\n"))
		if s, mode, path, ok := mapping(line); ok {
			now, ours, changed = s, path == exe && len(mode) > 1 && mode[1] == '-', true
			continue
		}
		name, size, _ := bytes.Cut(line, []byte(":"))
		none := string(bytes.TrimSpace(size)) == "0 kB"
		switch string(name) {
		case "Anonymous":
			changed = !none
		case "Swap": // comes later, and holds those changed pages that are not in memory
			if ours && none && !changed {
				all = append(all, now)
			}
		}
	}
	return all
}

// mapping reads the first line of a mapping:
//
//	00400000-009c6000 r-xp 00000000 fe:00 1234        /usr/bin/retryproxy
func mapping(line []byte) (s span, mode, path string, ok bool) {
	fields := bytes.SplitN(line, []byte(" "), 6)
	if len(fields) < 6 {
		return s, "", "", false
	}
	from, to, found := bytes.Cut(fields[0], []byte("-"))
	start, err := strconv.ParseUint(string(from), 16, 64)
	end, err2 := strconv.ParseUint(string(to), 16, 64)
	if !found || err != nil || err2 != nil {
		return s, "", "", false
	}
	return span{start, end}, string(fields[1]), string(bytes.TrimLeft(fields[5], " ")), true
}
