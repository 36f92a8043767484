package peers

import (
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/retryproxy/retryproxy/internal/logtest"
)

// LogLines makes a logger that writes JSON lines to the returned buffer.
func LogLines() (*zap.Logger, *logtest.Buffer) {
	b := &logtest.Buffer{}
	enc := zapcore.NewJSONEncoder(zapcore.EncoderConfig{MessageKey: "msg", LevelKey: "level", EncodeLevel: zapcore.LowercaseLevelEncoder, EncodeDuration: zapcore.SecondsDurationEncoder})
	return zap.New(zapcore.NewCore(enc, b, zap.InfoLevel)), b
}
