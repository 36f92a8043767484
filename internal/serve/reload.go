package serve

import (
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/retryproxy/retryproxy/internal/config"
)

// reload reads the settings again and applies them, or logs the errors and changes nothing.
func (a *app) reload(why string) {
	old := a.inForce.Load()
	s, problems := config.Load(a.options.Env)
	kept := s.KeepFrom(old.settings)
	if problems.Err() != nil {
		a.refuse(why, append(problems, fileProblems(s, problems)...).Err())
		return
	}
	c, err := a.configure(s)
	if err == nil {
		err = a.proxy.Reload(c)
	}
	if err != nil {
		a.refuse(why, err)
		return
	}
	a.inForce.Store(&inForce{settings: s, problems: problems, config: c})
	a.files.Set(s.Files())
	a.metrics.Retain(routeNames(s))
	a.metrics.ConfigLoaded(true, time.Now())
	for _, p := range problems.Warnings() {
		a.log.Warn("configuration: " + p.String())
	}
	for _, name := range kept {
		a.log.Warn("a changed setting takes effect at the next start only", zap.String("setting", name))
	}
	a.log.Info("configuration reloaded", zap.String("why", why), zap.Strings("changed", s.Changed(old.settings)), zap.Int("routes", len(s.Routes)))
}

// refuse keeps the old configuration. The files are checked again only when they change, so
// each bad version is reported once.
func (a *app) refuse(why string, err error) {
	a.metrics.ConfigLoaded(false, time.Now())
	lines := linesOf(err)
	for _, line := range lines {
		a.log.Error("configuration: " + line)
	}
	a.log.Error("configuration refused; the previous one stays in force", zap.String("why", why), zap.Int("errors", len(lines)))
}

// linesOf returns a line for each error that err joins.
func linesOf(err error) (lines []string) {
	for _, p := range config.ProblemsOf(err).Errors() {
		lines = append(lines, p.String())
	}
	if lines == nil { // not a problem of the settings
		return strings.Split(err.Error(), "\n")
	}
	return lines
}

func routeNames(s *config.Settings) []string {
	var names []string
	for _, r := range s.All() {
		names = append(names, r.Name)
	}
	return names
}
