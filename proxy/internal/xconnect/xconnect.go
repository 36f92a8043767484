// Package xconnect makes net/http's HTTP/2 server offer extended CONNECT
// (RFC 8441), by which browsers open WebSockets. Import it for its effect alone.
//
// net/http reads GODEBUG's http2xconnect once, when it is initialised, and has it
// off because its users' handlers may not expect such requests (golang/go#71128);
// ours does. Packages are initialised in the order of their import paths as soon
// as what they import is (the Go specification, "Program initialization"), so this
// one, which imports os and strings only, always comes before net/http. Whoever
// sets http2xconnect in the environment is obeyed.
package xconnect

import (
	"os"
	"strings"
)

func init() {
	const name = "http2xconnect"
	have := os.Getenv("GODEBUG")
	if strings.Contains(have, name+"=") {
		return
	}
	if have != "" {
		have += ","
	}
	_ = os.Setenv("GODEBUG", have+name+"=1") // fails for a bad name only
}
