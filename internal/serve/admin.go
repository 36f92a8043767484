package serve

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"go.uber.org/zap"

	"github.com/retryproxy/retryproxy/internal/admin"
	"github.com/retryproxy/retryproxy/internal/config"
	"github.com/retryproxy/retryproxy/internal/effective"
	"github.com/retryproxy/retryproxy/proxy"
)

// newAdmin returns the admin server. It opens nothing.
func (a *app) newAdmin(s *config.Settings) *admin.Server {
	return admin.New(admin.Options{
		Metrics: a.metrics.Handler(), Page: a.page,
		Ready: a.ready, Config: a.view,
		Drain: func() { notify(a.drain) }, Quit: func() { notify(a.quit) }, End: a.ending,
		RetryPercent: admin.RetryPercent{Get: a.proxy.RetryPercent, Set: a.setPercent},
		Access:       access(s), Log: zap.NewStdLog(a.log.Named("admin")),
	})
}

// access returns who may use the admin listener, besides programs on this machine.
func access(s *config.Settings) admin.Access {
	a := admin.Access{Allow: s.AdminAllow}
	if s.AdminTokenFile != "" {
		a.Token = func() (string, error) {
			token, err := config.AdminToken(s.AdminTokenFile)
			if err != nil {
				err = fmt.Errorf("%sADMIN_TOKEN_FILE: %w", config.Prefix, err)
			}
			return token, err
		}
	}
	return a
}

func (a *app) ready() error {
	if why := a.phase.Load(); why != nil {
		return errors.New(*why)
	}
	return nil
}

func (a *app) view() any {
	now := a.inForce.Load()
	return effective.Of(now.settings, now.problems)
}

// setPercent changes the percentage of retries that are made, as the admin listener was asked to.
func (a *app) setPercent(percent int) {
	was := a.proxy.RetryPercent()
	a.proxy.SetRetryPercent(percent)
	if was != percent {
		a.log.Warn("the share of retries that are made has changed", zap.Int("from_percent", was), zap.Int("to_percent", percent))
	}
}

func (a *app) listenAdmin(now *config.Settings) error {
	if a.admin == nil {
		return nil
	}
	if given := a.systemd.Listen(string(now.AdminListen)); given != nil {
		a.admin.Use(given)
		return nil
	}
	if err := a.admin.Listen(now.AdminListen.Split()); err != nil {
		return &proxy.ListenError{Address: string(now.AdminListen), Err: err}
	}
	return nil
}

// adminPatience is the time for a scrape in flight at the end.
const adminPatience = time.Second

func (a *app) closeAdmin() {
	if a.admin == nil {
		return
	}
	a.page.Close()
	ctx, cancel := context.WithTimeout(context.Background(), adminPatience)
	defer cancel()
	if err := a.admin.Close(ctx); err != nil && !errors.Is(err, http.ErrServerClosed) {
		a.log.Warn("the admin listener could not be closed", zap.Error(err))
	}
}
