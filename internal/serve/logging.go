package serve

import (
	"bytes"
	"io"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/retryproxy/retryproxy/internal/config"
	"github.com/retryproxy/retryproxy/internal/effective"
	"github.com/retryproxy/retryproxy/internal/terminal"
	"github.com/retryproxy/retryproxy/internal/text"
)

// newLogger writes whole lines from that level on to w, which must be safe for concurrent use: columns for
// people, or one JSON object each.
func newLogger(w io.Writer, columns bool, level zapcore.Level) *zap.Logger {
	sink := zapcore.AddSync(w)
	return zap.New(zapcore.NewCore(newEncoder(columns), sink, level), zap.ErrorOutput(sink))
}

// levelOf returns the level of RETRYPROXY_LOG_LEVEL.
func levelOf(s *config.Settings) zapcore.Level {
	level, err := zapcore.ParseLevel(s.LogLevel)
	if err != nil {
		return zapcore.InfoLevel // impossible: the setting has only words of zapcore
	}
	return level
}

func newEncoder(columns bool) zapcore.Encoder {
	config := zapcore.EncoderConfig{
		TimeKey:        "time",
		LevelKey:       "level",
		NameKey:        "logger",
		MessageKey:     "msg",
		LineEnding:     zapcore.DefaultLineEnding,
		EncodeTime:     zapcore.TimeEncoderOfLayout("2006-01-02T15:04:05.000Z07:00"),
		EncodeDuration: zapcore.SecondsDurationEncoder,
		EncodeLevel:    zapcore.LowercaseLevelEncoder,
	}
	if columns {
		config.EncodeTime = zapcore.TimeEncoderOfLayout("15:04:05.000")
		config.EncodeLevel = zapcore.CapitalLevelEncoder
		return zapcore.NewConsoleEncoder(config)
	}
	return zapcore.NewJSONEncoder(config)
}

// droppedLine returns the function that formats the line about dropped lines.
func droppedLine(columns bool) func(dropped uint64) []byte {
	encoder := newEncoder(columns)
	return func(dropped uint64) []byte {
		entry := zapcore.Entry{Level: zapcore.WarnLevel, Time: time.Now(), Message: "lines of the log were dropped because nobody read it"}
		line, err := encoder.EncodeEntry(entry, []zapcore.Field{zap.Uint64("lines", dropped)})
		if err != nil { // impossible for a number
			return nil
		}
		defer line.Free()
		return bytes.Clone(line.Bytes())
	}
}

// loggedRoutes limits the lines about routes at start; /config shows all.
const loggedRoutes = 50

// showConfig writes the effective settings: as check does on a terminal, else as lines of the log.
func (a *app) showConfig(s *config.Settings, problems config.Problems) {
	for _, p := range problems.Warnings() {
		a.log.Warn("configuration: " + p.String())
	}
	if !terminal.Is(a.options.Log) {
		logConfig(a.log, s)
		return
	}
	if !a.log.Core().Enabled(zapcore.InfoLevel) {
		return
	}
	var b bytes.Buffer // one write, so that no line of the log stands in between
	b.WriteByte('\n')
	effective.Text(&b, text.PaintFor(a.options.Log, a.options.Getenv), s, problems, false)
	_, _ = a.options.Log.Write(append(b.Bytes(), '\n')) // like a line of the log
}

// logConfig logs the effective settings: those of the process and the default route in one
// line, and a line per route with its own settings.
func logConfig(log *zap.Logger, s *config.Settings) {
	log.Info("effective configuration", zap.Object("settings", logValues(append(s.Values(), s.Default.Values()...))))
	for i := range s.Routes[:min(len(s.Routes), loggedRoutes)] {
		r := &s.Routes[i]
		log.Info("route", zap.String("route", r.Name), zap.Object("match", logValues(r.MatcherValues())), zap.Object("settings", logValues(ownValues(r))))
	}
	if more := len(s.Routes) - loggedRoutes; more > 0 {
		log.Info("further routes are not logged; /config of the admin listener shows all", zap.Int("routes", more))
	}
}

// ownValues returns the values that a variable of the route sets.
func ownValues(r *config.Route) []config.Value {
	var own []config.Value
	for _, v := range r.Values() {
		if v.Variable != config.Prefix+v.Key && v.Variable != "" {
			own = append(own, v)
		}
	}
	return own
}

// logValues logs settings by key, except those that do not apply.
type logValues []config.Value

// MarshalLogObject implements zapcore.ObjectMarshaler.
func (values logValues) MarshalLogObject(e zapcore.ObjectEncoder) error {
	for _, v := range values {
		if v.Text != "" {
			e.AddString(v.Key, v.Text)
		}
	}
	return nil
}
