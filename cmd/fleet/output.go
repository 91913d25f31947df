package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
)

// openOutputs creates what the flags name, so that a wrong name is found before hours of work. The
// files keep what they have until write replaces it.
func (s *settings) openOutputs() error {
	for _, o := range [...]struct{ flag, name string }{{"o", s.report}, {"json", s.json}} {
		if o.name == "" || o.flag == "json" && o.name == "-" {
			continue
		}
		f, err := os.OpenFile(o.name, os.O_WRONLY|os.O_CREATE, 0o644)
		if err == nil {
			err = f.Close()
		}
		if err != nil {
			return fmt.Errorf("-%s: %w; give a file in a directory that can be written", o.flag, err)
		}
	}
	if s.pictures == "" {
		return nil
	}
	err := os.MkdirAll(s.pictures, 0o755)
	var probe *os.File
	if err == nil {
		probe, err = os.CreateTemp(s.pictures, ".fleet-*")
	}
	if err == nil {
		err = errors.Join(probe.Close(), os.Remove(probe.Name()))
	}
	if err != nil {
		return fmt.Errorf("-svg: %w; give a folder that can be written", err)
	}
	return nil
}

// write writes everything that the flags ask for, besides the table. An output that fails does not
// stop the others. Without a result, files keep what they have.
func (s *settings) write(families []family, out io.Writer) error {
	families = slices.DeleteFunc(families, func(f family) bool { return len(f.Results) == 0 })
	if len(families) == 0 {
		return nil
	}
	var errs []error
	if s.json == "-" {
		errs = append(errs, writeJSON(out, families))
	} else if s.json != "" {
		errs = append(errs, writeFile(s.json, func(w io.Writer) error { return writeJSON(w, families) }))
	}
	if s.report != "" {
		errs = append(errs, writeFile(s.report, func(w io.Writer) error { return writeReport(w, families) }))
	}
	if s.pictures != "" {
		errs = append(errs, writePictures(s.pictures, families))
	}
	return errors.Join(errs...)
}

func writeFile(name string, write func(io.Writer) error) error {
	var text bytes.Buffer
	if err := write(&text); err != nil {
		return err
	}
	return os.WriteFile(name, text.Bytes(), 0o644)
}

func writeJSON(w io.Writer, results any) error {
	e := json.NewEncoder(w)
	e.SetIndent("", " ")
	return e.Encode(results)
}
