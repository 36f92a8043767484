// Package godebug reads the GODEBUG setting that turns off net/http's HTTP/2 client. net/http obeys it
// silently. A proxy that still asked for HTTP/2 would break each connection that chooses it.
package godebug

import (
	"os"
	"strings"
)

// HTTP2Client is the name of the setting.
const HTTP2Client = "http2client"

// Off reports whether the environment's GODEBUG sets name to 0.
func Off(name string) bool { return off(os.Getenv("GODEBUG"), name) }

// off reports whether all sets name to 0. The last of several settings of a name counts.
func off(all, name string) bool {
	last := ""
	for setting := range strings.SplitSeq(all, ",") {
		if value, is := strings.CutPrefix(setting, name+"="); is {
			last, _, _ = strings.Cut(value, "#") // the rest is for bisection
		}
	}
	return last == "0"
}
