package docs

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/retryproxy/retryproxy/internal/config"
	"github.com/retryproxy/retryproxy/policy/backoff"
)

const settingsIntro = `# Settings

This page lists every setting. All of them are environment variables, and can stand in a
configuration file.

- ` + "`retryproxy check`" + ` prints the settings in force and all errors at once, and starts nothing.
  It reads the environment of the shell in which you run it, as ` + "`explain` and `retryproxyctl plan`" + ` do.
- ` + "`/config`" + ` of the admin listener shows the settings of a running process. Clients on loopback may
  read it, and the clients that ` + "`RETRYPROXY_ADMIN_ALLOW` or `RETRYPROXY_ADMIN_TOKEN_FILE`" + ` admits.

## How settings work

- **Routes.** ` + "`RETRYPROXY_ROUTES=search,upload`" + ` names routes.
  ` + "`RETRYPROXY_ROUTE_SEARCH_PATH=/search/*`" + ` selects the requests of a route: exactly this path
  and everything below it. Without ` + "`/*`" + ` at the end, only the path itself matches. In a
  variable, the route's name is in upper case, with underscores instead of dashes. The most specific
  route wins. Requests that match no route belong to the route ` + "`default`" + `.
- **Values of a route.** A setting marked *per route* can be set for one route as
  ` + "`RETRYPROXY_ROUTE_<NAME>_<SETTING>`" + `. Otherwise the first of these that is set
  applies: the route's own profile, the setting for all routes, the profile for all routes, the default.
- **Upstream of a route.** A route with its own upstream does not inherit certificates, health
  path and the file of secret headers.
- **Routes to the same upstream** share its connections, circuit breaker, concurrency limit and retry
  budget if their settings for these are equal: the certificates of the upstream, ` + "`BUDGET_*`" + `,
  ` + "`BREAKER*`, `QUEUE_MAX`, `QUEUE_ORDER`, `CONCURRENCY_LIMIT`, `HEALTH_PATH`" + `
  and ` + "`DRY_RUN`" + `. Otherwise each group of equal routes has its own.
- **Empty** means not set. A setting below that names no default is not set by default.
- **Durations** have a unit: ` + "`250ms`" + `, ` + "`10s`" + `, ` + "`2m`" + `. **Sizes** may have one: ` + "`64KiB`" + `, ` + "`1MiB`" + `, or
  ` + "`1MB`" + ` for a million bytes; without it they are bytes. **Booleans** are true or false; ` + "`1`" + ` and
  ` + "`0`" + ` mean the same.
- **Unknown names** that begin with ` + "`RETRYPROXY_`" + ` stop the start.
  The variables that Kubernetes adds for a Service called retryproxy are recognised and ignored.
- **File.** ` + "`RETRYPROXY_CONFIG_FILE`" + ` names a file with more settings, as YAML or as lines; see
  [below](#configuration-file). A name that is set both in the file and in the environment is an
  error.
- **Reload.** The file is read again on SIGHUP and when it changes, and so are certificates. A swap
  of a mounted ConfigMap counts as a change. A ConfigMap mounted by subPath does not work, because
  Kubernetes never updates it. If the new version is invalid, the old one stays in force, the log
  has the errors and a metric counts them. A setting marked *at start* takes effect only at the next
  start; the log names it if it changed.
- **Traces** are configured by OpenTelemetry's own variables, such as
  ` + "`OTEL_EXPORTER_OTLP_ENDPOINT`" + `: see [traces.md](../how-to/traces.md).

## Configuration file

A file whose name ends in .yaml or .yml holds the same settings in lower case and without prefix,
and the routes as a list:

` + "```yaml" + `
# yaml-language-server: $schema=retryproxy.schema.json
upstream: http://app:3000
retry_on: [5xx, connect-failure, reset]
request_headers_set:
  X-Env: prod
routes:
  - name: search
    path: [/search/*, /suggest]
    max_retries: 5
` + "```" + `

` + "`retryproxyctl convert`" + ` prints the settings of the environment in this form. With the JSON
Schema [retryproxy.schema.json](retryproxy.schema.json), an editor completes names and marks mistakes.

Any other file holds lines ` + "`NAME=VALUE`" + `. Lines that begin with ` + "`#`" + ` are comments. Within single quotes,
every character stands for itself. Within double quotes, ` + "`\\n`, `\\t`, `\\\"`, `\\\\` and `\\$`" + ` are escapes.
Without quotes, ` + "`#`" + ` is an ordinary character. Variables are not expanded.

`

// Settings returns docs/reference/settings.md.
func Settings() string {
	var b strings.Builder
	b.WriteString(note)
	b.WriteString(settingsIntro)
	usual(&b)
	group := ""
	for _, s := range config.Reference() {
		if s.Group != group {
			group = s.Group
			fmt.Fprintf(&b, "## %s\n\n", group)
		}
		setting(&b, &s)
	}
	strategies(&b)
	return b.String()
}

// setting writes the entry of a setting.
func setting(b *strings.Builder, s *config.Setting) {
	fmt.Fprintf(b, "### %s\n\n", code(s.Variable()))
	paragraph(b, "", plain(s.About+profiles(s)))
	b.WriteString("\n")
	line := "Values: " + plain(strings.Replace(s.Expected(), " with its unit, such as 250ms, 10s or 2m", "", 1))
	if s.Shown != "none" || strings.Contains(s.About, "none: ") { // else the introduction says it
		line = "Default: " + plain(s.Shown) + ". " + line
	}
	if words := marks(s); words != "" {
		line += ". " + words
	}
	paragraph(b, "- ", line)
	b.WriteString("\n")
}

// usual writes the settings that most people need.
func usual(b *strings.Builder) {
	b.WriteString("## The settings that most people need\n\n")
	all := config.Reference()
	slices.SortStableFunc(all, func(a, b config.Setting) int { return int(b.Scope) - int(a.Scope) }) // the upstream first
	for _, s := range all {
		if s.Example != "" {
			about, _, _ := strings.Cut(s.About, ". ")
			about, _, _ = strings.Cut(about, ": ")
			paragraph(b, "- ", code(s.Variable()+"="+s.Example)+": "+plain(strings.TrimSuffix(about, "."))+".")
		}
	}
	b.WriteString("\nEvery setting follows, by what it is for. Its default is right for most.\n\n")
}

// ProfileTable returns the table of the defaults that a profile changes.
func ProfileTable(profile string) string {
	var rows [][]string
	for _, s := range config.Reference() {
		if value, changed := s.Profiles[profile]; changed {
			rows = append(rows, []string{code(s.Variable()), value, s.Shown})
		}
	}
	return markdown([]string{"Setting", "With the profile", "Without"}, rows)
}

// profiles returns the defaults that a profile changes.
func profiles(s *config.Setting) string {
	var text string
	for _, name := range config.Profiles() {
		if v, ok := s.Profiles[name]; ok {
			text += fmt.Sprintf(" With PROFILE=%s: %s.", name, v)
		}
	}
	return text
}

// marks returns the remarks about a setting.
func marks(s *config.Setting) string {
	var words []string
	if s.Scope == config.ScopeShared {
		words = append(words, "*per route*")
	}
	if !s.Live {
		words = append(words, "*at start*")
	}
	return strings.Join(words, ", ")
}

const strategiesIntro = `## Backoff strategies

n is 0 for the first retry, U(a, b) is uniform in [a, b], N(0, s) normal with deviation s.
[Choose a backoff](../how-to/backoff.md) says when to take which. Options follow the name of the
strategy, each after a colon: ` + "`RETRYPROXY_BACKOFF=normal:jitter=0.2:factor=3`" + `. BREAKER_BACKOFF and
` + "`retryproxyctl plan --backoff`" + ` take the same.

- ` + "`base`" + `: first wait, before jitter; slots: the time of a slot
- ` + "`max`" + `: longest wait
- ` + "`factor`" + `: between a wait and the next one, from 1 to 1000
- ` + "`jitter`" + `: standard deviation of a wait, as a fraction of it, up to 1
- ` + "`spread`" + `: longest random addition to a wait
- ` + "`ratio`" + `: of a wait to the time that has passed before it, up to 1000
- ` + "`slots`" + `: ceiling of the slot number, up to 32. After it, the strategy begins again
- ` + "`stay=true`" + `: it stays at the ceiling instead
- ` + "`extra`" + `: longest extra random wait, on top of the maximum. Every strategy has it. It spreads clients
  whose waits would otherwise be equal

The strategies:

`

// strategies lists the backoffs with their formulas.
func strategies(b *strings.Builder) {
	b.WriteString(strategiesIntro)
	for _, name := range backoff.Strategies() {
		info, _ := backoff.Describe(name)
		paragraph(b, "- ", code(name)+": "+info.Summary)
		paragraph(b, "  - ", "Wait: "+code(oneLine(info.Formula)))
		if info.Defaults != (backoff.Options{}) {
			paragraph(b, "  - ", "Its own defaults: "+defaults(info.Defaults))
		}
		paragraph(b, "  - ", "Source: "+info.Source)
	}
}

func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }

// defaults lists the options that a strategy uses, as they are written.
func defaults(o backoff.Options) string {
	var parts []string
	for _, d := range []struct {
		key   string
		value any
	}{
		{"base", o.Base}, {"factor", o.Factor}, {"max", o.Max}, {"jitter", o.Jitter}, {"spread", o.Spread}, {"ratio", o.Ratio}, {"slots", o.Slots},
	} {
		if reflect.ValueOf(d.value).IsZero() {
			continue
		}
		text := fmt.Sprint(d.value)
		if t, is := d.value.(time.Duration); is {
			text = config.DurationText(t)
		}
		parts = append(parts, d.key+"="+text)
	}
	return code(strings.Join(parts, ":"))
}
