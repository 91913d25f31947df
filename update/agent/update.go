package agent

import "crypto/sha256"

// UpdateID names an update. Its zero value is no update.
type UpdateID struct{ Provider, Name, Version string }

// String returns "Contoso/Tractor 1.0", or "none".
func (id UpdateID) String() string {
	if id == (UpdateID{}) {
		return "none"
	}
	return id.Provider + "/" + id.Name + " " + id.Version
}

const maxIDPart = 64

// Valid reports whether the service takes the id: provider and name have 1 to 64 ASCII letters,
// digits, dots and hyphens, and the version has 2 to 4 numbers with dots between them.
func (id UpdateID) Valid() bool {
	return validName(id.Provider) && validName(id.Name) && validVersion(id.Version)
}

func validName(s string) bool {
	for i := range len(s) {
		if c := s[i] | ' '; !('a' <= c && c <= 'z' || '0' <= s[i] && s[i] <= '9' || s[i] == '.' || s[i] == '-') {
			return false
		}
	}
	return s != "" && len(s) <= maxIDPart
}

func validVersion(s string) bool {
	numbers, digits := 1, 0 // digits of the latest number
	for i := range len(s) {
		switch {
		case '0' <= s[i] && s[i] <= '9':
			digits++
		case s[i] == '.' && digits > 0:
			numbers, digits = numbers+1, 0
		default:
			return false
		}
	}
	return digits > 0 && 2 <= numbers && numbers <= 4 && len(s) <= maxIDPart
}

// Property is a property of a device that updates are chosen by, such as manufacturer.
type Property struct{ Name, Value string }

// Properties are 1 to 5 properties with different names.
type Properties []Property

// Manifest describes an update: what its publisher has signed.
type Manifest struct {
	ID UpdateID
	// Compatibility lists kinds of devices. The update is for a device that has all properties of one
	// of them.
	Compatibility []Properties
	// Steps are done in order.
	Steps []Step
	// Files are all files of the update, in the order of the manifest.
	Files []File
}

// Step is a part of an update that one Handler does.
type Step struct {
	// Handler is the name of the handler, such as "microsoft/swupdate:1". A step of type reference has
	// none.
	Handler string
	// Files are ids of files.
	Files []string
	// InstalledCriteria is the handler's property of that name: it tells a handler whether the step is
	// done already.
	InstalledCriteria string
	// Properties is the JSON object with all properties for the handler, nil if there is none.
	Properties []byte
	// Manifest is the id of the file with the step's own manifest, for a step of type reference.
	Manifest string
}

// File is a file of an update.
type File struct {
	ID, Name string
	Size     int64
	SHA256   [sha256.Size]byte
	// URL is where the file is. It is part of the offer, not of the manifest, and is not signed.
	URL string

	// DownloadHandler names the handler that makes the file from Related and a file which the device
	// has, such as "microsoft/delta:1". It is optional: File itself can be downloaded, too.
	DownloadHandler string
	// Related are files such as a delta.
	Related []File
	// Properties is a JSON object with properties of a related file, nil if there is none.
	Properties []byte
}
