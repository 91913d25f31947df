package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/hubline-iot/hubline/fleet"
)

// maxFile bounds the size of a scenario's file.
const maxFile = 1 << 20

// readFile reads a file of at most the given size. fix says what to do about a larger one.
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
	return text, err
}

// readScenario reads a scenario and checks it.
func readScenario(name string) (fleet.Scenario, error) {
	var s fleet.Scenario
	text, err := readFile(name, maxFile, "give one scenario")
	if err != nil {
		return s, err
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&s); err != nil {
		return s, usageError{fmt.Errorf("%s: %w; give the fields of fleet.Scenario", name, err)}
	}
	if s.Name == "" {
		s.Name = filepath.Base(name)
	}
	return s, s.Validate()
}

// write writes everything that the flags ask for.
func (s *settings) write(families []family, out io.Writer) error {
	if s.pictures != "" {
		if err := writePictures(s.pictures, families); err != nil {
			return err
		}
	}
	if s.report != "" {
		if err := writeFile(s.report, func(w io.Writer) error { return writeReport(w, families) }); err != nil {
			return err
		}
	}
	if s.json == "-" {
		return writeJSON(out, families)
	}
	if s.json != "" {
		if err := writeFile(s.json, func(w io.Writer) error { return writeJSON(w, families) }); err != nil {
			return err
		}
	}
	return writeTables(out, families)
}

func writeFile(name string, write func(io.Writer) error) error {
	var text bytes.Buffer
	if err := write(&text); err != nil {
		return err
	}
	return os.WriteFile(name, text.Bytes(), 0o644)
}

func writeJSON(w io.Writer, families []family) error {
	e := json.NewEncoder(w)
	e.SetIndent("", " ")
	return e.Encode(families)
}
