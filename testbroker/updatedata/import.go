package updatedata

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
)

// An importManifest is the description of an update that back ends send to the service. Source:
// its JSON schema azure-deviceupdate-import-manifest-5.0.json.
type importManifest struct {
	Schema        string              `json:"$schema"`
	ID            UpdateID            `json:"updateId"`
	Description   string              `json:"description"`
	Deployable    *bool               `json:"isDeployable"`
	Compatibility []map[string]string `json:"compatibility"`
	Instructions  struct {
		Steps []importStep `json:"steps"`
	} `json:"instructions"`
	Files   []importFile `json:"files"`
	Created string       `json:"createdDateTime"`
	Version string       `json:"manifestVersion"`
}

type importStep struct {
	Type        string          `json:"type"`
	Description string          `json:"description"`
	Handler     string          `json:"handler"`
	Files       []string        `json:"files"`
	Properties  json.RawMessage `json:"handlerProperties"`
	Reference   UpdateID        `json:"updateId"`
}

type importFile struct {
	Name            string            `json:"filename"`
	Size            int64             `json:"sizeInBytes"`
	Hashes          map[string]string `json:"hashes"`
	MIMEType        string            `json:"mimeType"`
	Properties      map[string]string `json:"properties"`
	Related         []importFile      `json:"relatedFiles"`
	DownloadHandler *struct {
		ID string `json:"id"`
	} `json:"downloadHandler"`
}

// ParseImport reads an import manifest of version 4.0 or 5.0, such as one of the command az iot du
// update init v5. read returns the content of a file of the update by its name. As in the service,
// members that the schema lacks are refused, and so are files that differ from their size or hash.
func ParseImport(text []byte, read func(name string) ([]byte, error)) (Update, error) {
	var m importManifest
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&m); err != nil {
		return Update{}, fmt.Errorf("import manifest: %w", err)
	}
	versions := map[string]string{"4.0": "4", "5.0": "5"}
	u := Update{ID: m.ID, Description: m.Description, Compatibility: m.Compatibility, Version: versions[m.Version]}
	if u.Version == "" {
		return u, fmt.Errorf("import manifest: manifestVersion %q; give 4.0 or 5.0", m.Version)
	}
	for _, step := range m.Instructions.Steps {
		if string(step.Properties) == "null" {
			step.Properties = nil
		}
		u.Steps = append(u.Steps, Step{Handler: step.Handler, Files: step.Files, Properties: step.Properties,
			Description: step.Description, Reference: step.Reference})
	}
	var err error
	if u.Files, err = readFiles(m.Files, read); err != nil {
		return u, fmt.Errorf("import manifest of %s: %w", u.ID, err)
	}
	return u, u.Check()
}

func readFiles(files []importFile, read func(name string) ([]byte, error)) (all []File, err error) {
	for _, of := range files {
		f := File{Name: of.Name, Properties: of.Properties}
		if f.Content, err = read(of.Name); err != nil {
			return nil, err
		}
		if n := int64(len(f.Content)); n != of.Size {
			return nil, fmt.Errorf("file %q has %d bytes, not sizeInBytes %d; make the manifest anew", of.Name, n, of.Size)
		}
		sum := sha256.Sum256(f.Content)
		if text := base64.StdEncoding.EncodeToString(sum[:]); text != of.Hashes["sha256"] {
			return nil, fmt.Errorf("file %q has the hash %s, not hashes.sha256 %q; make the manifest anew", of.Name, text,
				of.Hashes["sha256"])
		}
		if of.DownloadHandler != nil {
			f.DownloadHandler = of.DownloadHandler.ID
		}
		if f.Related, err = readFiles(of.Related, read); err != nil {
			return nil, err
		}
		all = append(all, f)
	}
	return all, nil
}
