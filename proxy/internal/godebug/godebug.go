// Package godebug reads the settings of GODEBUG by which net/http's HTTP/2 is turned off.
// net/http obeys them silently; a proxy that went on to offer HTTP/2 would
// break each connection on which it is chosen.
package godebug

import (
	"os"
	"strings"
)

// Names of settings.
const (
	HTTP2Server = "http2server"
	HTTP2Client = "http2client"
)

// Off reports whether the environment's GODEBUG sets name to 0.
func Off(name string) bool { return off(os.Getenv("GODEBUG"), name) }

// off: the last of several settings of a name counts.
func off(all, name string) bool {
	last := ""
	for setting := range strings.SplitSeq(all, ",") {
		if value, is := strings.CutPrefix(setting, name+"="); is {
			last, _, _ = strings.Cut(value, "#") // what follows is for bisection
		}
	}
	return last == "0"
}
