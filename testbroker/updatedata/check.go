package updatedata

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"unicode/utf8"
)

// The limits of an update. Source: the schema of import manifests of the service, version 5.0.
const (
	maxName       = 64 // characters of a part of an update's id
	maxSets       = 10
	maxProperties = 5
	maxSteps      = 10
	maxFiles      = 10
	maxFileName   = 255
)

var (
	namePattern    = regexp.MustCompile(`^[a-zA-Z0-9.-]{1,64}$`)
	versionPattern = regexp.MustCompile(`^\d{1,10}(\.\d{1,10}){1,3}$`)
	handlerPattern = regexp.MustCompile(`^\S+/\S+:\d{1,5}$`)
)

// Check returns an error for an id that the service refuses.
func (id UpdateID) Check() error {
	switch {
	case !namePattern.MatchString(id.Provider):
		return fmt.Errorf("provider %q; give 1 to %d letters, digits, dots and dashes", id.Provider, maxName)
	case !namePattern.MatchString(id.Name):
		return fmt.Errorf("name %q; give 1 to %d letters, digits, dots and dashes", id.Name, maxName)
	case !versionPattern.MatchString(id.Version):
		return fmt.Errorf("version %q; give 2 to 4 numbers with dots between", id.Version)
	}
	return nil
}

// Check returns an error for an update that the service would not import.
func (u *Update) Check() error {
	if err := u.ID.Check(); err != nil {
		return fmt.Errorf("update: %w", err)
	}
	if u.Version != "4" && u.Version != "5" {
		return fmt.Errorf("update %s: manifest version %q; give 4 or 5", u.ID, u.Version)
	}
	if n := len(u.Compatibility); n < 1 || n > maxSets {
		return fmt.Errorf("update %s: %d sets of compatibility properties; give 1 to %d", u.ID, n, maxSets)
	}
	for _, set := range u.Compatibility {
		if n := len(set); n < 1 || n > maxProperties {
			return fmt.Errorf("update %s: %d compatibility properties in a set; give 1 to %d", u.ID, n, maxProperties)
		}
	}
	names := make(map[string]bool)
	if err := u.checkFiles(u.Files, names); err != nil {
		return err
	}
	if n := len(u.Steps); n < 1 || n > maxSteps {
		return fmt.Errorf("update %s: %d steps; give 1 to %d", u.ID, n, maxSteps)
	}
	for i := range u.Steps {
		if err := u.Steps[i].check(u.Files); err != nil {
			return fmt.Errorf("update %s: step %d: %w", u.ID, i, err)
		}
	}
	return nil
}

func (u *Update) checkFiles(files []File, names map[string]bool) error {
	if len(files) > maxFiles {
		return fmt.Errorf("update %s: %d files; give at most %d", u.ID, len(files), maxFiles)
	}
	for _, f := range files {
		n := utf8.RuneCountInString(f.Name)
		switch {
		case n < 1 || n > maxFileName:
			return fmt.Errorf("update %s: a file name of %d characters; give 1 to %d", u.ID, n, maxFileName)
		case names[f.Name]:
			return fmt.Errorf("update %s: two files are named %q", u.ID, f.Name)
		case len(f.Content) == 0:
			return fmt.Errorf("update %s: file %q is empty; the service takes none", u.ID, f.Name)
		case len(f.Related) > 0 && f.DownloadHandler == "":
			return fmt.Errorf("update %s: file %q has related files; name a download handler too", u.ID, f.Name)
		}
		names[f.Name] = true
		if err := u.checkFiles(f.Related, names); err != nil {
			return err
		}
	}
	return nil
}

func (s *Step) check(files []File) error {
	if s.Reference != (UpdateID{}) {
		if s.Handler != "" || len(s.Files) > 0 || len(s.Properties) > 0 {
			return fmt.Errorf("it refers to %s; leave out handler, files and properties", s.Reference)
		}
		return s.Reference.Check()
	}
	if !handlerPattern.MatchString(s.Handler) {
		return fmt.Errorf("handler %q; give one such as microsoft/swupdate:1", s.Handler)
	}
	for _, name := range s.Files {
		if !slices.ContainsFunc(files, func(f File) bool { return f.Name == name }) {
			return fmt.Errorf("file %q is not one of the update", name)
		}
	}
	if len(s.Properties) > 0 && (!json.Valid(s.Properties) || s.Properties[0] != '{') {
		return fmt.Errorf("properties %q are no JSON object", s.Properties)
	}
	return nil
}
