package main

import (
	"cmp"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/retryproxy/retryproxy/internal/config"
)

// atADesk are the commands of retryproxyctl that people look for here.
var atADesk = []string{"plan", "simulate", "plot", "advise", "inject", "webhook", "convert"}

// otherNames are what other programs call our commands.
var otherNames = map[string]string{
	"run": "serve", "start": "serve", "up": "serve", "server": "serve", "proxy": "serve", "daemon": "serve",
	"validate": "check", "test": "check", "configtest": "check", "config": "check", "lint": "check", "verify": "check", "show": "check", "settings": "check",
	"-t": "check", "--test": "check", "-T": "check", "--check": "check", "--validate": "check", "--dry-run": "check", "--validate-config": "check",
	"status": "health", "ping": "health", "healthcheck": "health", "ready": "health", "stop": "drain", "shutdown": "drain", "quit": "drain",
	"route": "explain", "match": "explain", "why": "explain", "-V": "version", "-v": "version",
}

// shortFlags are what other programs call settings in short.
var shortFlags = map[string]string{
	"c": "CONFIG_FILE", "f": "CONFIG_FILE", "u": "UPSTREAM", "p": "LISTEN", "l": "LISTEN", "k": "INSECURE", "d": "DEBUG", "r": "MAX_RETRIES",
}

// unknown reports a command that there is not.
func (o *outside) unknown(name string) error {
	var names []string
	for _, c := range commands() {
		names = append(names, c.name)
	}
	hint := "see retryproxy help"
	if slices.Contains(atADesk, name) {
		hint = "this is a command of retryproxyctl: retryproxyctl " + name
	} else if meant := cmp.Or(otherNames[name], config.Nearest(name, slices.Values(names))); meant != "" {
		hint = "did you mean " + meant + "?"
	} else if meant := meantByArgument(name, "serve"); meant != "" {
		hint = meant
	}
	fmt.Fprintf(o.stderr, "retryproxy: unknown command %q; %s\n", config.Mask(name), hint)
	return errUsage
}

// meantByArgument returns which flag or setting may have been meant by an argument that the command does
// not take, or "".
func meantByArgument(arg, command string) string {
	_, notDuration := time.ParseDuration(arg)
	_, notNumber := strconv.Atoi(arg)
	switch {
	case command == "health" || command == "drain":
		return config.SuggestAddressFlag(arg)
	case command == "demo" && notDuration == nil:
		return "did you mean --for " + arg + "?"
	case command == "explain" && notNumber == nil:
		return "explain prints what each status leads to, so leave it out"
	case !readsSettings(command):
		return ""
	}
	switch upstream := config.Suggest("UPSTREAM", arg); {
	case strings.HasPrefix(arg, config.Prefix) && strings.Contains(arg, "="):
		return "put the variable before the command: " + asVariable(arg, command)
	case isConfigFile(arg):
		return "a variable names the configuration file: " + asVariable(config.Prefix+"CONFIG_FILE="+arg, command)
	case upstream != "" && strings.ContainsAny(arg, ":/.0123456789"):
		return "a variable names the upstream: " + asVariable(config.Prefix+"UPSTREAM="+upstream, command)
	}
	return ""
}

// readsSettings reports whether settings say what the command does.
func readsSettings(command string) bool {
	return command == "serve" || command == "check" || command == "explain"
}

// isConfigFile reports whether an argument is a file that exists, or has the name of a configuration file.
func isConfigFile(arg string) bool {
	if info, err := os.Stat(arg); err == nil && info.Mode().IsRegular() {
		return true
	}
	return slices.ContainsFunc([]string{".yaml", ".yml", ".env", ".conf", ".json", ".toml"}, func(end string) bool { return strings.HasSuffix(arg, end) })
}

// meantByFlag returns what may have been meant by a flag that the command does not have. Settings are
// variables, so a flag is taken for the setting of that name.
func meantByFlag(args []string, flag, command string) string {
	if meant := otherNames[flag]; meant != "" && command == "serve" {
		return "did you mean retryproxy " + meant + "?"
	}
	name := strings.TrimLeft(flag, "-")
	value := valueOf(args, name)
	switch {
	case command == "health" || command == "drain":
		return config.SuggestAddressFlag(value)
	case command == "explain" && (name == "method" || name == "X"):
		return "the method is the first argument"
	case command == "explain" && (name == "d" || strings.HasPrefix(name, "data")):
		return "the body does not matter, so leave it out"
	case !readsSettings(command):
		return ""
	}
	key := strings.ToUpper(strings.ReplaceAll(name, "-", "_"))
	if short, is := shortFlags[name]; is {
		key = short
	}
	if key == "LISTEN" || key == "PORT" {
		if address := config.Suggest("LISTEN", value); address != "" {
			return "settings are environment variables: " + asVariable(config.Prefix+"LISTEN="+address, command)
		}
	}
	assignment, hint := config.AsVariable(key, value)
	switch {
	case assignment != "":
		return "settings are environment variables: " + asVariable(assignment, command)
	case hint != "":
		return "settings are environment variables; " + hint
	}
	return "settings are environment variables: docs/reference/settings.md"
}

// valueOf returns the value that follows a flag, or "".
func valueOf(args []string, name string) string {
	for i, arg := range args {
		given, value, has := strings.Cut(strings.TrimLeft(arg, "-"), "=")
		switch {
		case given != name || !strings.HasPrefix(arg, "-"):
		case has:
			return value
		case i+1 < len(args) && !strings.HasPrefix(args[i+1], "-"):
			return args[i+1]
		}
	}
	return ""
}

// asVariable returns a command line with the variable. serve needs not be named.
func asVariable(assignment, command string) string {
	if command == "serve" {
		command = ""
	}
	return strings.TrimSpace(config.Mask(assignment) + " retryproxy " + command)
}
