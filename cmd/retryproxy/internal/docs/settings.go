package docs

import (
	"fmt"
	"reflect"
	"strings"
	"time"

	"github.com/retryproxy/retryproxy/cmd/retryproxy/internal/settings"
	"github.com/retryproxy/retryproxy/policy"
)

const settingsIntro = `# Settings

Everything is set by environment variables. ` + "`retryproxy check`" + ` prints the result and everything that is wrong with it, all at once, before
anything is started; a running process shows its own at ` + "`/config`" + ` of the admin listener, to loopback.

- **Routes.** ` + "`RETRYPROXY_ROUTES=search,upload`" + ` names routes; ` + "`RETRYPROXY_ROUTE_SEARCH_PATH=/search/*`" + ` says which requests the route takes. What no route
  takes is the route ` + "`default`" + `. The most specific route wins.
- **A route's own values.** A setting marked *per route* may be set as ` + "`RETRYPROXY_ROUTE_<NAME>_<SETTING>`" + `. Where it is not, the nearest value counts: the
  route's own profile, then what is set without a route, then the profile there, then the default. A route that names its own upstream takes none of the
  other upstream's certificates, key, server name and probe path.
- **Empty** means not set. **Durations** have a unit (` + "`250ms`, `10s`, `2m`" + `), **sizes** may have one (` + "`64KiB`, `1MiB`" + `, plain bytes).
- **Names** that begin with ` + "`RETRYPROXY_`" + ` and are none of these stop the start, unless ` + "`RETRYPROXY_STRICT=false`" + `. Those that Kubernetes makes for a Service called
  retryproxy are recognised and ignored.
- **A file.** ` + "`RETRYPROXY_ENV_FILE`" + ` names a file of lines ` + "`NAME=VALUE`" + `. Lines that begin with ` + "`#`" + ` are comments. In single quotes everything is as it stands; in
  double quotes ` + "`\\n`, `\\t`, `\\\"`, `\\\\` and `\\$`" + ` stand for a character; without quotes ` + "`#`" + ` is one like any other. Nothing is expanded. A name that is set in the
  environment too is an error, so no precedence has to be remembered.
- **Changes.** The file is read again on SIGHUP and when it changes, also by the swap of a mounted ConfigMap (not one mounted by subPath, which Kubernetes never
  updates). A new version that is not valid is refused, with its errors in the log and a count in the metrics, and the old one goes on. What takes effect only
  at the next start is marked *at start*; a change of it is named in the log.
- **Traces** are set by OpenTelemetry's own variables, such as ` + "`OTEL_EXPORTER_OTLP_ENDPOINT`" + `: see [traces.md](traces.md).

`

// Settings is docs/settings.md.
func Settings() string {
	var b strings.Builder
	b.WriteString(note)
	b.WriteString(settingsIntro)
	group := ""
	var rows [][]string
	flush := func() {
		if len(rows) > 0 {
			fmt.Fprintf(&b, "## %s\n\n", group)
			table(&b, []string{"Variable", "Default", "Meaning", "Values", ""}, rows)
		}
		rows = nil
	}
	for _, s := range settings.Reference() {
		if s.Group != group {
			flush()
			group = s.Group
		}
		rows = append(rows, []string{code(s.Variable()), s.Shown, s.About + batch(&s), s.Expected(), marks(&s)})
	}
	flush()
	strategies(&b)
	return b.String()
}

func batch(s *settings.Setting) string {
	if s.Batch == "" {
		return ""
	}
	return fmt.Sprintf(" With PROFILE=batch: %s.", s.Batch)
}

// marks are the words beside a setting.
func marks(s *settings.Setting) string {
	var words []string
	if s.Scope == settings.ScopeShared {
		words = append(words, "per route")
	}
	if !s.Live {
		words = append(words, "at start")
	}
	return strings.Join(words, ", ")
}

// strategies lists the backoffs with their formulas.
func strategies(b *strings.Builder) {
	b.WriteString("## Backoff strategies\n\nn is 0 for the first retry, U(a, b) is uniform in [a, b], N(0, s) normal with deviation s.\n" +
		"Every strategy also takes `RETRYPROXY_BACKOFF_EXTRA`. Which one when: [tuning.md](tuning.md).\n\n")
	var rows [][]string
	for _, name := range policy.Strategies() {
		info, _ := policy.Describe(name)
		rows = append(rows, []string{code(name), code(oneLine(info.Formula)), defaults(info.Defaults), info.Summary, info.Source})
	}
	table(b, []string{"`RETRYPROXY_BACKOFF`", "Wait", "Its own defaults", "", "Source"}, rows)
}

func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }

// defaults lists the settings that a strategy uses.
func defaults(o policy.Options) string {
	var parts []string
	for _, d := range []struct {
		key   string
		value any
	}{
		{"BASE", o.Base}, {"FACTOR", o.Factor}, {"MAX", o.Max}, {"JITTER", o.Jitter}, {"SPREAD", o.Spread}, {"RATIO", o.Ratio}, {"SLOTS", o.Slots},
	} {
		if reflect.ValueOf(d.value).IsZero() {
			continue
		}
		text := fmt.Sprint(d.value)
		if t, is := d.value.(time.Duration); is {
			text = settings.DurationText(t)
		}
		parts = append(parts, d.key+" "+text)
	}
	return strings.Join(parts, ", ")
}
