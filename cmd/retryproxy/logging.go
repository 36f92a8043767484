package main

import (
	"io"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/retryproxy/retryproxy/cmd/retryproxy/internal/settings"
)

// newLogger writes lines to w in the given format: one JSON object each, or
// columns for people. Lines are written whole, one after the other, and none
// is held back.
func newLogger(w io.Writer, format string, level zap.AtomicLevel) *zap.Logger {
	sink := zapcore.Lock(zapcore.AddSync(w))
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
	encoder := zapcore.NewJSONEncoder(config)
	if format == "console" {
		config.EncodeTime = zapcore.TimeEncoderOfLayout("15:04:05.000")
		config.EncodeLevel = zapcore.CapitalLevelEncoder
		encoder = zapcore.NewConsoleEncoder(config)
	}
	return zap.New(zapcore.NewCore(encoder, sink, level), zap.ErrorOutput(sink))
}

// levelOf is the zap level of a setting that was checked.
func levelOf(s *settings.Settings) zapcore.Level {
	level, err := zapcore.ParseLevel(s.LogLevel)
	if err != nil {
		return zapcore.InfoLevel
	}
	return level
}

// loggedRoutes bounds the lines about routes at the start; /config shows all.
const loggedRoutes = 50

// logConfig writes what applies: the settings of the process and the default
// route in one line, and a line per route with what it has of its own.
func logConfig(log *zap.Logger, s *settings.Settings, problems settings.Problems) {
	for _, p := range problems.Warnings() {
		log.Warn("configuration: " + p.String())
	}
	log.Info("effective configuration", zap.Object("settings", logValues(append(s.Values(), s.Default.Values()...))))
	for i := range s.Routes[:min(len(s.Routes), loggedRoutes)] {
		r := &s.Routes[i]
		log.Info("route", zap.String("route", r.Name), zap.Object("match", logValues(r.MatcherValues())), zap.Object("settings", logValues(ownValues(r))))
	}
	if more := len(s.Routes) - loggedRoutes; more > 0 {
		log.Info("further routes are not logged; /config of the admin listener shows all", zap.Int("routes", more))
	}
}

// ownValues are those that differ from the default route's by a variable.
func ownValues(r *settings.Route) []settings.Value {
	var own []settings.Value
	for _, v := range r.Values() {
		if v.Variable != settings.Prefix+v.Key && v.Variable != "" {
			own = append(own, v)
		}
	}
	return own
}

// logValues logs settings by key; what does not apply is left out.
type logValues []settings.Value

// MarshalLogObject satisfies zapcore.ObjectMarshaler.
func (values logValues) MarshalLogObject(e zapcore.ObjectEncoder) error {
	for _, v := range values {
		if v.Text != "" {
			e.AddString(v.Key, v.Text)
		}
	}
	return nil
}
