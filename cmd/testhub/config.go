package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/hubline-iot/hubline/internal/texts"
)

// maxConfig bounds a file of flags, in bytes.
const maxConfig = 1 << 20

// configSettings are the flags about the file of flags.
type configSettings struct {
	file    string
	print   bool
	inForce map[string]any // all flags with their values
}

// notInFile are the flags that a file of flags cannot have.
var notInFile = []string{"config", "print-config", "health"}

// secretFlags are the flags that -print-config leaves out.
var secretFlags = []string{"control-token"}

// flags registers the flags.
func (s *configSettings) flags(f *flag.FlagSet) {
	f.StringVar(&s.file, "config", "", "JSON `file` with flags: their names without the dash as members, lists for those "+
		"that are repeatable; the command line goes before it")
	f.BoolVar(&s.print, "print-config", false, "do not start: print the flags in force, as a file for -config, "+
		"without -control-token")
}

// read sets the flags of the file, except those that the command line has set.
func (s *configSettings) read(f *flag.FlagSet) error {
	if s.file == "" {
		return nil
	}
	raw, err := readBounded(s.file, maxConfig)
	if err != nil {
		return fmt.Errorf("flag -config: %w; give a file that can be read", err)
	}
	members, problem := membersOf(withoutMark(raw), "")
	if problem != nil {
		problem.Fix = cmp.Or(problem.Fix, `give an object such as {"keep": 1000}`)
		return fmt.Errorf("flag -config: %s: %w", s.file, problem)
	}
	var given []string
	f.Visit(func(fl *flag.Flag) { given = append(given, fl.Name) })
	for _, name := range slices.Sorted(maps.Keys(members)) {
		fl := f.Lookup(name)
		if fl == nil || slices.Contains(notInFile, name) {
			return fmt.Errorf("flag -config: %s: %s is no flag that a file can have; %s-h lists them all", s.file,
				name, texts.NearestName(strings.TrimLeft(name, "-"), inFile(f)))
		}
		values, err := valuesOf(fl, members[name])
		if err != nil {
			return fmt.Errorf("flag -config: %s: %s: %w", s.file, name, err)
		}
		if slices.Contains(given, name) {
			continue
		}
		for _, v := range values {
			if err := f.Set(name, v); err != nil {
				return fmt.Errorf("flag -config: %s: %s: invalid value %q: %w; -h describes the flag", s.file, name, v, err)
			}
		}
	}
	return nil
}

// readBounded reads a file that is not larger than a limit.
func readBounded(name string, limit int64) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	raw, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err == nil && int64(len(raw)) > limit {
		err = fmt.Errorf("%s is larger than %d bytes", name, limit)
	}
	return raw, err
}

// withoutMark returns a text without the byte order mark that editors and shells of Windows write.
func withoutMark(raw []byte) []byte { return bytes.TrimPrefix(raw, []byte("\uFEFF")) }

// valuesOf returns the values of a flag as the command line would have them.
func valuesOf(fl *flag.Flag, raw json.RawMessage) ([]string, error) {
	var list []json.RawMessage
	if json.Unmarshal(raw, &list) != nil || list == nil {
		v, err := valueOf(raw)
		return []string{v}, err
	}
	if !repeatable(fl) {
		return nil, errors.New("it is a list; give one value, because the flag is not repeatable")
	}
	all := make([]string, len(list))
	for i, element := range list {
		v, err := valueOf(element)
		if err != nil {
			return nil, fmt.Errorf("[%d]: %w", i, err)
		}
		all[i] = v
	}
	return all, nil
}

// valueOf returns a text, number or boolean as text.
func valueOf(raw json.RawMessage) (string, error) {
	var v any
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	if err := d.Decode(&v); err != nil {
		return "", err
	}
	switch v := v.(type) {
	case string:
		return v, nil
	case json.Number, bool:
		return fmt.Sprint(v), nil
	}
	return "", errors.New("it is neither a text nor a number nor true or false; give one of these")
}

// repeatable reports whether a flag may be given several times. Its help text says so.
func repeatable(fl *flag.Flag) bool { return strings.Contains(fl.Usage, "; repeatable") }

// inFile returns the names of the flags that a file can have.
func inFile(f *flag.FlagSet) (all []string) {
	f.VisitAll(func(fl *flag.Flag) {
		if !slices.Contains(notInFile, fl.Name) {
			all = append(all, fl.Name)
		}
	})
	return all
}

// A recorder knows the values of all flags, also of those that are functions.
type recorder struct {
	flags *flag.FlagSet
	plain map[string]flag.Value
	all   map[string]*recordedValue
}

// A recordedValue is the value of a flag with the texts that it was set to.
type recordedValue struct {
	flag.Value
	set []string
}

func (v *recordedValue) Set(text string) error {
	err := v.Value.Set(text)
	if err == nil {
		v.set = append(v.set, text)
	}
	return err
}

// IsBoolFlag makes -json mean -json=true.
func (v *recordedValue) IsBoolFlag() bool {
	b, ok := v.Value.(interface{ IsBoolFlag() bool })
	return ok && b.IsBoolFlag()
}

// record records the values of all flags that are set from now on.
func record(f *flag.FlagSet) *recorder {
	r := &recorder{f, make(map[string]flag.Value), make(map[string]*recordedValue)}
	f.VisitAll(func(fl *flag.Flag) {
		r.plain[fl.Name], r.all[fl.Name] = fl.Value, &recordedValue{Value: fl.Value}
		fl.Value = r.all[fl.Name]
	})
	return r
}

// help prints the flags as they were before they were set.
func (r *recorder) help(w io.Writer) {
	r.flags.VisitAll(func(fl *flag.Flag) { fl.Value = r.plain[fl.Name] })
	fmt.Fprintln(w, "Usage of testhub:")
	r.flags.SetOutput(w)
	r.flags.PrintDefaults()
}

// inForce returns the values of all flags that a file can have, without empty ones and secrets.
func (r *recorder) inForce() map[string]any {
	values := make(map[string]any)
	r.flags.VisitAll(func(fl *flag.Flag) {
		v := r.all[fl.Name]
		getter, isPlain := v.Value.(flag.Getter)
		switch {
		case slices.Contains(notInFile, fl.Name), slices.Contains(secretFlags, fl.Name):
		case repeatable(fl):
			if len(v.set) > 0 {
				values[fl.Name] = v.set
			}
		case !isPlain:
			if len(v.set) > 0 {
				values[fl.Name] = v.set[len(v.set)-1]
			}
		case v.String() != "":
			values[fl.Name] = getter.Get()
		}
	})
	return values
}

// printConfig prints a file of flags.
func printConfig(values map[string]any, w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(values); err != nil {
		return outputError(err)
	}
	return nil
}
