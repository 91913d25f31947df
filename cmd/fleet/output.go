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

// readScenario reads a scenario and checks it.
func readScenario(name string) (fleet.Scenario, error) {
	var s fleet.Scenario
	f, err := os.Open(name)
	if err != nil {
		return s, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return s, err
	}
	if len(text) > maxFile {
		return s, fmt.Errorf("%s: larger than %d bytes; give one scenario", name, maxFile)
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&s); err != nil {
		return s, fmt.Errorf("%s: %w; give the fields of fleet.Scenario", name, err)
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
