package assemble

import (
	"errors"

	"github.com/retryproxy/retryproxy/cmd/retryproxy/internal/settings"
	"github.com/retryproxy/retryproxy/proxy/certs"
	"github.com/retryproxy/retryproxy/proxy/forward"
)

// invalid is the error of Config.
type invalid struct{ problems settings.Problems }

// Error has one line per problem.
func (e *invalid) Error() string { return e.problems.Err().Error() }

// Unwrap makes it match settings.ErrInvalid.
func (e *invalid) Unwrap() error { return settings.ErrInvalid }

// ProblemsOf are the problems that an error of Config joins, each with the
// variable to change. Of another error there are none.
func ProblemsOf(err error) settings.Problems {
	var all *invalid
	if errors.As(err, &all) {
		return all.problems
	}
	return nil
}

func (m *maker) err() error {
	if len(m.problems) == 0 {
		return nil
	}
	return &invalid{m.problems}
}

// The keys of the settings that fields of other packages' errors stand for.
var (
	upstreamFiles = map[string]string{"CA": "UPSTREAM_CA", "Cert": "UPSTREAM_CERT", "Key": "UPSTREAM_KEY", "ServerName": "UPSTREAM_SERVER_NAME"}
	listenerFiles = map[string]string{"Cert": "TLS_CERT", "Key": "TLS_KEY", "ClientCA": "TLS_CLIENT_CA"}
	forwarding    = map[string]string{"Host": "UPSTREAM_HOST", "Via": "VIA", "StripPrefix": "STRIP_PREFIX"}
)

// note adds what is wrong with a route. key is the setting to blame unless the
// error knows better.
func (m *maker) note(r *settings.Route, key string, err error) {
	var several interface{ Unwrap() []error }
	var file *certs.FileError
	var field *forward.SettingError
	value := ""
	switch {
	case err == nil:
		return
	case errors.As(err, &several):
		for _, each := range several.Unwrap() {
			m.note(r, key, each)
		}
		return
	case errors.As(err, &file):
		key, value = upstreamFiles[file.Field], file.File
	case errors.As(err, &field):
		key = forwarding[field.Setting]
	}
	m.problems = append(m.problems, settings.Problem{Variable: r.Blame(key), Value: value, Message: err.Error()})
}

// listenerTLS notes what is wrong with the files of the listener.
func (m *maker) listenerTLS(err error) {
	key, value := "TLS_CERT", ""
	var file *certs.FileError
	if errors.As(err, &file) {
		key, value = listenerFiles[file.Field], file.File
	}
	m.problems = append(m.problems, settings.Problem{Variable: settings.Prefix + key, Value: value, Message: err.Error()})
}
