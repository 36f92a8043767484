package config

import (
	"errors"

	"github.com/retryproxy/retryproxy/proxy/certs"
	"github.com/retryproxy/retryproxy/proxy/forward"
)

// Invalid returns an error that joins the problems; ProblemsOf returns them again.
func (ps Problems) Invalid() error { return &invalid{ps} }

// invalid is the error of Build.
type invalid struct{ problems Problems }

// Error returns one line per problem.
func (e *invalid) Error() string { return e.problems.Err().Error() }

// Unwrap makes it match ErrInvalid.
func (e *invalid) Unwrap() error { return ErrInvalid }

// ProblemsOf returns the problems joined by an error of Build or Invalid, each with the
// variable to change; nil for another error.
func ProblemsOf(err error) Problems {
	var all *invalid
	if errors.As(err, &all) {
		return all.problems
	}
	return nil
}

func (b *builder) err() error {
	if len(b.problems) == 0 {
		return nil
	}
	b.settings.Locate(b.problems)
	return &invalid{b.problems}
}

// These maps translate fields in errors of other packages to the keys of settings.
var (
	upstreamFiles = map[string]string{"CA": "UPSTREAM_CA", "Cert": "UPSTREAM_CERT", "Key": "UPSTREAM_CERT", "ServerName": "UPSTREAM_HOST"}
	listenerFiles = map[string]string{"Cert": "TLS_CERT", "Key": "TLS_CERT", "ClientCA": "TLS_CLIENT_CA"}
	forwarding    = map[string]string{"Host": "UPSTREAM_HOST", "StripPrefix": "STRIP_PREFIX"}
)

// note adds a problem of a route. key is the setting to blame unless the error names
// another one.
func (b *builder) note(r *Route, key string, err error) {
	var several interface{ Unwrap() []error }
	var file *certs.FileError
	var field *forward.SettingError
	value := ""
	switch {
	case err == nil:
		return
	case errors.As(err, &several):
		for _, each := range several.Unwrap() {
			b.note(r, key, each)
		}
		return
	case errors.As(err, &file):
		key, value = upstreamFiles[file.Field], file.File
	case errors.As(err, &field):
		key = forwarding[field.Setting]
	}
	b.problems = append(b.problems, Problem{Variable: r.Blame(key), Value: value, Message: err.Error()})
}

// listenerTLS adds a problem with the files of the listener.
func (b *builder) listenerTLS(err error) {
	key, value := "TLS_CERT", ""
	var file *certs.FileError
	if errors.As(err, &file) {
		key, value = listenerFiles[file.Field], file.File
	}
	b.problems = append(b.problems, Problem{Variable: Prefix + key, Value: value, Message: err.Error()})
}
