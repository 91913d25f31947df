package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"unicode"

	"github.com/hubline-iot/hubline/fleet"
)

const (
	maxFile = 1 << 20 // bytes of a scenario's file
	maxName = 100     // bytes of a scenario's name
)

// readFile reads a text of at most the given size. fix says what to do about a larger one. A byte
// order mark, with which spreadsheets and editors of Windows begin a file, is left out.
func readFile(name string, most int64, fix string) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, most+1))
	if err == nil && int64(len(text)) > most {
		err = fmt.Errorf("%s: larger than %d bytes; %s", name, most, fix)
	}
	return bytes.TrimPrefix(text, []byte("\ufeff")), err
}

// readScenario reads a scenario and checks its name.
func readScenario(name string) (fleet.Scenario, error) {
	var s fleet.Scenario
	text, err := readFile(name, maxFile, "give one scenario")
	if err != nil {
		return s, err
	}
	if err := json.Unmarshal(text, &s); err != nil {
		return s, usageError{fmt.Errorf("%s: %w; give one fleet.Scenario, see docs/fleet-simulator.md", name, err)}
	}
	if s.Name == "" {
		s.Name = filepath.Base(name)
	}
	if err := checkName(s.Name); err != nil {
		return s, usageError{fmt.Errorf("%s: %w", name, err)}
	}
	return s, nil
}

// checkName reports a name that a terminal, an SVG file or a file system may not take.
func checkName(name string) error {
	unprintable := func(r rune) bool { return r == unicode.ReplacementChar || !unicode.IsPrint(r) }
	if len(name) > maxName || strings.ContainsFunc(name, unprintable) {
		return errors.New("the scenario's Name is too long or has control characters; give at most 100 printable bytes")
	}
	return nil
}
