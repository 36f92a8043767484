package serve

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"

	"go.uber.org/zap"

	"github.com/retryproxy/retryproxy/internal/config"
	"github.com/retryproxy/retryproxy/internal/systemd"
	"github.com/retryproxy/retryproxy/proxy"
)

// open opens the listeners, all or none.
func (a *app) open(memory int64) error {
	now := a.inForce.Load()
	if err := a.listen(now.settings); err != nil {
		return err
	}
	b := a.options.Build
	fields := []zap.Field{zap.String("version", b.Version), zap.String("revision", b.Revision), zap.String("position", now.settings.Position)}
	for i, addr := range a.proxy.Addrs() {
		name := "listen"
		if i > 0 {
			name = fmt.Sprintf("listen_%d", i+1)
		}
		fields = append(fields, zap.Stringer(name, addr))
	}
	if a.admin != nil {
		fields = append(fields, zap.Stringer("admin", a.admin.Addr()))
	}
	if memory > 0 {
		fields = append(fields, zap.Int64("memory_limit_bytes", memory))
	}
	a.metrics.ConfigLoaded(true, time.Now())
	a.log.Info("started", fields...)
	a.showConfig(now.settings, now.problems)
	return nil
}

// logListenErrors logs each listener that could not be opened, with the variable to change,
// and returns the other errors.
func (a *app) logListenErrors(err error) error {
	var several interface{ Unwrap() []error }
	if errors.As(err, &several) {
		var rest []error
		for _, each := range several.Unwrap() {
			rest = append(rest, a.logListenErrors(each))
		}
		return errors.Join(rest...)
	}
	var wrong *proxy.ListenError
	if !errors.As(err, &wrong) {
		return err
	}
	variable := a.inForce.Load().settings.ListenVariable(wrong.Address)
	a.log.Error("cannot listen", zap.String("variable", variable), zap.String("address", wrong.Address), zap.Error(wrong.Err), zap.String("hint", listenHint(wrong.Err, variable)))
	return ErrReported
}

// listenHint returns what to do about an address that cannot be listened on.
func listenHint(err error, variable string) string {
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return "another process listens on this address; stop that process, or set " + variable + " to another port"
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		return "this machine does not have the address; set " + variable + " to an address of this machine"
	case errors.Is(err, syscall.EACCES), errors.Is(err, syscall.EPERM):
		return "this user may not listen on the address; set " + variable + " to a port of 1024 or above, or to a socket in a directory that the user may write"
	}
	return "set " + variable + " to another address"
}

// listen opens every listener, or takes systemd's; on error it closes all.
func (a *app) listen(now *config.Settings) error {
	var err error
	if a.systemd, err = systemd.Take(); err != nil {
		return err
	}
	err = errors.Join(a.proxy.Listen(), a.listenAdmin(now))
	if err == nil {
		err = a.systemd.Rest() // no listener would serve them
	}
	a.systemd.Close()
	if err != nil {
		a.abandon()
	}
	return err
}

// abandon closes what listen opened.
func (a *app) abandon() {
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	_ = a.proxy.Serve(ended) // ends at once
	if a.admin != nil {
		a.admin.Abandon()
	}
}
