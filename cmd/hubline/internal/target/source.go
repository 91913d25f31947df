package target

import (
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/hubline-iot/hubline/transport"
)

// Variables of the environment.
const (
	EnvConnect  = "HUBLINE_CONNECTION_STRING"
	EnvBroker   = "HUBLINE_BROKER_URL"
	EnvKey      = "HUBLINE_KEY"
	EnvGroupKey = "HUBLINE_GROUP_KEY"
)

// Variables that the examples of the official SDKs read, and that testhub prints.
const (
	EnvDPS               = "PROVISIONING_HOST"
	EnvIDScope           = "PROVISIONING_IDSCOPE"
	EnvRegistrationID    = "PROVISIONING_REGISTRATION_ID"
	EnvProvisionKey      = "PROVISIONING_SYMMETRIC_KEY"
	EnvProvisionGroupKey = "PROVISIONING_MASTER_SYMMETRIC_KEY"
)

// maxSecret bounds a file with a connection string, a URL or a key.
const maxSecret = 64 << 10

// World is what the tool sees of its surroundings. Tests replace it.
type World struct {
	Getenv func(string) string
	// Ask prompts for a secret and reads it without echo. Nil: there is nobody to ask.
	Ask func(prompt string) (string, error)
	// Note prints a line for the person in front of the tool. Nil: nobody reads it.
	Note func(line string)
}

// Secret is a text that must not be printed, and where it came from.
type Secret struct {
	Text transport.Secret
	From string
}

const onCommandLine = "a connection string on the command line can be read by every user of this machine (ps), and " +
	"stays in the shell's history; put it into a file and give -connect-file FILE, or into the variable " + EnvConnect +
	", or give neither and type it at the prompt; -insecure-command-line allows it for keys that protect nothing"

// connection returns the connection string or the URL. ok is false if there is none.
func (f *Flags) connection(w *World) (s Secret, ok bool, err error) {
	switch {
	case f.Connect != "" && !f.OnCommandLine && !isOpen(f.Connect):
		return s, false, usage("-connect: " + onCommandLine)
	case f.Connect != "" && f.File != "":
		return s, false, usage("-connect and -connect-file: give one of them")
	case f.Connect != "":
		return Secret{transport.Hide(f.Connect), "-connect"}, true, nil
	case f.File != "":
		s, err = readFile("-connect-file", f.File)
		return s, err == nil, err
	}
	for _, name := range []string{EnvConnect, EnvBroker} {
		if text := w.Getenv(name); text != "" {
			if name == EnvConnect && w.Getenv(EnvBroker) != "" && w.Note != nil {
				w.Note(EnvConnect + " is used and " + EnvBroker + " is not: both are set; unset one of them")
			}
			return Secret{transport.Hide(text), name}, true, nil
		}
	}
	return s, false, nil
}

// mayBeScheme reports whether text in front of "://" may be shown as a scheme [RFC 3986, 3.1].
// Other text is a part of something else, such as a key.
func mayBeScheme(text string) bool {
	const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789+-."
	return len(text) <= 16 && strings.Trim(text, letters) == ""
}

// isOpen reports whether text is a broker's URL without user name and password.
func isOpen(text string) bool {
	scheme, rest, ok := strings.Cut(text, "://")
	return ok && !strings.ContainsAny(scheme, "=;") && !strings.Contains(rest, "@")
}

// Refuse returns an error for arguments that hold a secret: a connection string, or a broker's URL
// with a password.
func Refuse(args []string) error {
	for _, arg := range args {
		lower := strings.ToLower(arg)
		if hasPassword(lower) {
			return usage("argument with a password: " + onCommandLine)
		}
		for _, mark := range []string{"sharedaccesskey=", "sharedaccesssignature", "sharedaccesskey%3d"} {
			if strings.Contains(lower, mark) {
				return usage("argument with a key: " + onCommandLine)
			}
		}
	}
	return nil
}

// hasPassword reports whether an argument, or the value of its flag, is a broker's URL with a user.
func hasPassword(arg string) bool {
	if strings.HasPrefix(arg, "-") {
		_, arg, _ = strings.Cut(arg, "=")
	}
	scheme, rest, ok := strings.Cut(arg, "://")
	return ok && strings.Contains(rest, "@") && isScheme(scheme)
}

// key returns the key of a registration: from the file, the environment or the prompt. It is not ok
// if there is none.
func (f *Flags) key(w *World) (s Secret, group, ok bool, err error) {
	for _, way := range []struct {
		option, file, env string
		group             bool
	}{
		{"-key-file", f.KeyFile, "", false},
		{"-group-key-file", f.GroupKeyFile, "", true},
		{"", "", EnvKey, false},
		{"", "", EnvGroupKey, true},
		{"", "", EnvProvisionKey, false},
		{"", "", EnvProvisionGroupKey, true},
	} {
		if way.file != "" {
			s, err = readFile(way.option, way.file)
			return s, way.group, err == nil, err
		}
		if way.env != "" {
			if text := w.Getenv(way.env); text != "" {
				return Secret{transport.Hide(strings.TrimSpace(text)), way.env}, way.group, true, nil
			}
		}
	}
	return s, false, false, nil
}

// ask prompts for a secret.
func (w *World) ask(prompt string) (Secret, error) {
	text, err := w.Ask(prompt)
	if err != nil {
		return Secret{}, fmt.Errorf("prompt: %w", err)
	}
	if text = strings.TrimSpace(text); text == "" {
		return Secret{}, usage("prompt: nothing was typed; give the text, or -connect-file FILE")
	}
	return Secret{transport.Hide(text), "the prompt"}, nil
}

func readFile(option, name string) (Secret, error) {
	file, err := os.Open(name)
	if err != nil {
		return Secret{}, usage(option + ": " + unopened(name, err))
	}
	text, err := io.ReadAll(io.LimitReader(file, maxSecret+1))
	err = errors.Join(err, file.Close())
	switch {
	case err != nil:
		return Secret{}, usage(option + ": " + err.Error())
	case len(text) > maxSecret:
		return Secret{}, usage(fmt.Sprintf("%s: %s has more than %d bytes; give a file with the text alone", option, name,
			maxSecret))
	case strings.TrimSpace(string(text)) == "":
		return Secret{}, usage(option + ": " + name + " is empty; write the text into it")
	}
	return Secret{transport.Hide(strings.TrimSpace(string(text))), name}, nil
}

// secretLength is the length from which a name may be a key in base64 instead.
const secretLength = 20

// unopened says why a file cannot be opened. It does not show a name that may be a secret, which
// was written in place of the file that has it.
func unopened(name string, err error) string {
	_, notKey := base64.StdEncoding.DecodeString(name)
	if notKey == nil && len(name) >= secretLength || strings.ContainsAny(name, "=@;") {
		return "there is no file of that name; a key or a URL itself is not taken, because every user of this machine can " +
			"read it there (ps): write it into a file"
	}
	return err.Error()
}
