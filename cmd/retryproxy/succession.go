package main

import (
	"context"
	"net"

	"github.com/coreos/go-systemd/v22/daemon"
	"go.uber.org/zap"

	"github.com/retryproxy/retryproxy/cmd/retryproxy/internal/handover"
	"github.com/retryproxy/retryproxy/cmd/retryproxy/internal/settings"
)

// succession is who listened before this process and who will after it.
type succession struct {
	systemd   *handover.Sockets // what systemd opened for us
	inherited *handover.Sockets // what the process before us listens on
	old       *handover.Old     // that process; nil for none
	offer     *handover.Offer   // for the process after us; nil without RETRYPROXY_HANDOVER
	followed  chan struct{}     // closed when that one serves
}

func newSuccession() succession {
	return succession{systemd: &handover.Sockets{}, inherited: &handover.Sockets{}, followed: make(chan struct{})}
}

// inherit gets what others opened for this process.
func (s *succession) inherit(now *settings.Settings) (err error) {
	if s.systemd, err = handover.FromSystemd(); err != nil {
		return err
	}
	if now.Handover == "" {
		return nil
	}
	s.inherited, s.old, err = handover.Ask(now.Handover)
	return err
}

// socket is an inherited one for an address, nil when there is none.
func (s *succession) socket(address string) net.Listener {
	if l := s.systemd.Listen(address); l != nil {
		return l
	}
	return s.inherited.Listen(address)
}

// settle closes what was inherited and is not configured any more. A socket of
// systemd's that no setting names is an error: nobody would ever answer there.
func (s *succession) settle() error {
	s.inherited.Close()
	err := s.systemd.Rest()
	s.systemd.Close()
	return err
}

// abandon lets the process before us go on.
func (s *succession) abandon() {
	s.systemd.Close()
	s.inherited.Close()
	s.old.Leave()
}

// announce offers what a listens on to the process after it.
func (a *app) announce(now *settings.Settings) (err error) {
	if now.Handover == "" {
		return nil
	}
	var sockets []handover.Named
	for i, l := range a.proxy.Sockets() {
		sockets = append(sockets, handover.Named{Name: a.inForce.Load().config.Listen[i], Listener: l})
	}
	if a.admin != nil {
		sockets = append(sockets, handover.Named{Name: now.AdminListen.String(), Listener: a.admin.Socket()})
	}
	a.succession.offer, err = handover.NewOffer(now.Handover, sockets)
	return err
}

// takeOver tells whoever has to know that this process serves.
func (a *app) takeOver() {
	if err := a.succession.old.Serving(); err != nil {
		a.log.Warn("the process before this one may not have heard that it can end", zap.Error(err))
	}
	if _, err := daemon.SdNotify(false, daemon.SdNotifyReady); err != nil {
		a.log.Warn("tell systemd that it started", zap.Error(err))
	}
}

// awaitSuccessor waits until another process serves in place of this one.
func (a *app) awaitSuccessor(ctx context.Context) {
	if a.succession.offer == nil {
		return
	}
	if a.succession.offer.Serve(ctx, func(err error) { a.log.Warn("handover", zap.Error(err)) }) {
		close(a.succession.followed)
	}
}
