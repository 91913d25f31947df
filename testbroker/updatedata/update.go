package updatedata

import "encoding/json"

// UpdateID names an update. The zero value is no update.
type UpdateID struct {
	Provider string `json:"provider"`
	Name     string `json:"name"`
	Version  string `json:"version"`
}

// String returns the parts with slashes between, or "none".
func (id UpdateID) String() string {
	if id == (UpdateID{}) {
		return "none"
	}
	return id.Provider + "/" + id.Name + "/" + id.Version
}

// Update is an update with its files, as a back end imports it: [ParseImport] reads the import
// manifest of the service's tools.
type Update struct {
	ID          UpdateID
	Description string
	// Compatibility are the sets of properties of devices that the update is for, at least one. A
	// device fits if it has all properties of a set. Names and values are compared in any letter case.
	Compatibility []map[string]string
	// Steps are the instructions in order, 1 to 10.
	Steps []Step
	// Files are the files that steps name.
	Files []File
	// Version is the version of the manifest that devices get, "4" or "5". Default: "5".
	Version string
}

// References returns how many steps refer to other updates, which must be published before.
func (u Update) References() int {
	n := 0
	for _, s := range u.Steps {
		if s.Reference != (UpdateID{}) {
			n++
		}
	}
	return n
}

// Step is an instruction.
type Step struct {
	// Handler is the name of the program that executes the step, such as "microsoft/swupdate:1".
	Handler string
	// Files are names of files of the update.
	Files []string
	// Properties is a JSON object for the handler, such as {"installedCriteria":"1.0"}; nil = none.
	Properties json.RawMessage `json:",omitempty"`
	// Description is for people.
	Description string
	// Reference, unless zero, makes the step install another update, which is published before and has
	// no references itself. Then Handler, Files and Properties are empty.
	Reference UpdateID
}

// File is a file of an update.
type File struct {
	Name    string
	Content []byte
	// Properties are free texts about the file, for its handler.
	Properties map[string]string
	// Related are files from which DownloadHandler can make this one, such as a delta.
	Related []File
	// DownloadHandler is the name of the program that makes the file, such as "microsoft/delta:1".
	DownloadHandler string
}

// Deployment offers an update to devices.
type Deployment struct {
	// WorkflowID identifies the deployment to devices, 1 to 128 characters. Default: a random UUID.
	WorkflowID string
	Update     UpdateID
	// Devices are the ids of devices, in any letter case. Default: all.
	Devices []string
	// Properties select devices by their compatibility properties, as a set of Update.Compatibility
	// does. Default: all.
	Properties map[string]string
	// Percent, if positive, is the share of the selected devices. Which ones is a matter of their ids
	// and the update, so a larger share includes a smaller one. Default: 100.
	Percent int
	// Incompatible offers the update also to devices that it is not for. A device must refuse it.
	Incompatible bool
	// KeepOffering offers the update to a device that has reported its end as well. An onboarding job
	// of the service does so.
	KeepOffering bool
}
