// Package adminclient sends requests to the admin listener of a running retryproxy.
package adminclient

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/retryproxy/retryproxy/internal/config"
)

// ErrAddress is the error of an address that is not one.
var ErrAddress = errors.New("expected host:port or unix:/path")

// Address returns the address of the admin listener: the given one, or if that is "", the one of the
// settings in environ. It ignores problems of other settings: a health check must not fail because of
// them. The error matches ErrAddress if the given address is wrong.
func Address(given string, environ []string) (config.Address, error) {
	if given != "" {
		a, err := config.ParseAddress(given)
		if err != nil || a.Off() {
			return "", fmt.Errorf("--address %s: %w", given, ErrAddress)
		}
		return a, nil
	}
	s, _ := config.Load(environ)
	if s.AdminListen.Off() {
		return "", errors.New("RETRYPROXY_ADMIN_LISTEN=off: the admin listener is off")
	}
	return s.AdminListen, nil
}

// Ask sends one request without a body to the admin listener.
type Ask func(ctx context.Context, method, path string) (status int, answer string, err error)

// To returns an Ask for the listener at a that waits at most timeout for each response.
func To(a config.Address, timeout time.Duration) Ask {
	return func(ctx context.Context, method, path string) (int, string, error) {
		ctx, cancel := context.WithTimeout(ctx, timeout)
		defer cancel()
		return Send(ctx, a, method, path)
	}
}

// maxAnswer is the maximum size of a response. The longest ones are the metrics of ten
// thousand routes.
const maxAnswer = 64 << 20

// Send sends one request without a body to the listener at a.
func Send(ctx context.Context, a config.Address, method, path string) (int, string, error) {
	network, address := a.Split()
	if network == "tcp" {
		address = reachable(address)
	}
	var dialer net.Dialer
	transport := &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return dialer.DialContext(ctx, network, address)
		},
	}
	defer transport.CloseIdleConnections()
	host := "localhost" // the host that the admin server expects from its own machine
	if network == "tcp" && !strings.HasPrefix(address, "127.") && !strings.HasPrefix(address, "[::1]") {
		host = address
	}
	request, err := http.NewRequestWithContext(ctx, method, "http://"+host+path, nil)
	if err != nil {
		return 0, "", err
	}
	response, err := transport.RoundTrip(request)
	if err != nil {
		return 0, "", fmt.Errorf("no response from the admin listener %s: %w", a, err)
	}
	defer response.Body.Close() //nolint:errcheck // it was only read
	answer, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	return response.StatusCode, strings.TrimSpace(string(answer)), err
}

// reachable returns the address at which a listener on the given address can be dialed from
// this machine: loopback for a wildcard address.
func reachable(address string) string {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return address
	}
	switch host {
	case "", "0.0.0.0":
		host = "127.0.0.1"
	case "::":
		host = "::1"
	}
	return net.JoinHostPort(host, port)
}
