// Package xconnect makes net/http's HTTP/2 server offer extended CONNECT (RFC 8441), which
// browsers use to open WebSockets. Import it for its side effect.
//
// net/http reads GODEBUG's http2xconnect once, when it is initialised. Its default is off
// because its users' handlers may not expect such requests (golang/go#71128); ours does.
// Packages are initialised in the order of their import paths as soon as their imports are
// (the Go specification, "Program initialization"). This package only imports os and
// strings, so it always precedes net/http. A http2xconnect that is set in the environment
// is not changed.
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
	_ = os.Setenv("GODEBUG", have+name+"=1") // fails only for an invalid name
}
