package main

import (
	"io"
	stdlog "log"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// A certificate that cannot be verified is in the log before the first request.
func TestACertificateThatCannotBeVerifiedIsLoggedAtStart(t *testing.T) {
	s := httptest.NewUnstartedServer(http.NotFoundHandler())
	s.Config.ErrorLog = stdlog.New(io.Discard, "", 0) // it complains of the handshake
	s.StartTLS()
	t.Cleanup(s.Close)
	p := startProxy(t, "UPSTREAM="+s.URL)
	p.await("line", func() bool {
		return strings.Contains(p.log.String(), "the certificate of the upstream cannot be verified; requests to it will fail")
	})
}
