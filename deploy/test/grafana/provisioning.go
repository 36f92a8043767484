package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"go.yaml.in/yaml/v4"
)

// source is a data source as Grafana's provisioning describes it; the fields
// that Grafana knows and nobody here uses are left out, so they are refused.
type source struct {
	Name      string         `yaml:"name"`
	UID       string         `yaml:"uid"`
	Type      string         `yaml:"type"`
	Access    string         `yaml:"access"`
	URL       string         `yaml:"url"`
	IsDefault bool           `yaml:"isDefault"`
	JSONData  map[string]any `yaml:"jsonData"`

	at *url.URL
}

// provider names a directory of dashboards.
type provider struct {
	Name    string `yaml:"name"`
	Type    string `yaml:"type"`
	Options struct {
		Path string `yaml:"path"`
	} `yaml:"options"`
}

// board is what is looked at of a dashboard; raw is all of it.
type board struct {
	UID, Title string
	Templating struct {
		List []struct{ Name, Type, Query string }
	}
	Panels []struct {
		Title      string
		Datasource *struct{ Type, UID string }
	}

	raw json.RawMessage
}

// file is one of provisioning; a directory's files have one of the lists.
type file struct {
	APIVersion  int        `yaml:"apiVersion"`
	Datasources []source   `yaml:"datasources"`
	Providers   []provider `yaml:"providers"`
}

// readAll gives every file of a directory to take.
func readAll(dir string, take func(*file) error) error {
	paths, err := filepath.Glob(dir + "/*.y*ml")
	if err == nil && len(paths) == 0 {
		err = fmt.Errorf("%s: no provisioning file", dir)
	}
	if err != nil {
		return err
	}
	for _, path := range paths {
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		var f file
		d := yaml.NewDecoder(bytes.NewReader(content))
		d.KnownFields(true)
		err = d.Decode(&f)
		if err == nil && f.APIVersion != 1 {
			err = fmt.Errorf("apiVersion %d: expected 1", f.APIVersion)
		}
		if err == nil {
			err = take(&f)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
	}
	return nil
}

func readSources(dir string) (map[string]source, error) {
	all := map[string]source{}
	return all, readAll(dir, func(f *file) error {
		for _, s := range f.Datasources {
			var err error
			if s.at, err = url.Parse(s.URL); err != nil || s.at.Host == "" || s.UID == "" || s.Name == "" || s.Access != "proxy" {
				return fmt.Errorf("data source %q: expected name, uid, access: proxy and a URL, got %+v", s.Name, s)
			}
			all[s.UID] = s
		}
		return nil
	})
}

func readBoards(dir string, sources map[string]source) (map[string]board, error) {
	all := map[string]board{}
	return all, readAll(dir, func(f *file) error {
		for _, p := range f.Providers {
			if err := p.read(all, sources); err != nil {
				return fmt.Errorf("provider %q: %w", p.Name, err)
			}
		}
		return nil
	})
}

func (p *provider) read(all map[string]board, sources map[string]source) error {
	paths, err := filepath.Glob(p.Options.Path + "/*.json")
	if err != nil || p.Type != "file" || len(paths) == 0 {
		return fmt.Errorf("no dashboards of type %q in %q", p.Type, p.Options.Path)
	}
	for _, path := range paths {
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		b := board{raw: content}
		if err := json.Unmarshal(content, &b); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		if _, twice := all[b.UID]; twice || b.UID == "" || b.Title == "" {
			return fmt.Errorf("%s: no title, or uid %q missing or taken", path, b.UID)
		}
		if err := b.check(sources); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		all[b.UID] = b
	}
	return nil
}

// check wants every panel to have a data source that exists: a provisioned one,
// or a variable for which one of its type can be chosen.
func (b *board) check(sources map[string]source) error {
	kinds := map[string]bool{}
	for _, s := range sources {
		kinds[s.Type] = true
	}
	chosen := map[string]string{}
	for _, v := range b.Templating.List {
		if v.Type == "datasource" {
			chosen[v.Name] = v.Query
		}
	}
	for _, p := range b.Panels {
		if p.Datasource == nil { // a heading
			continue
		}
		uid := p.Datasource.UID
		if variable, ok := strings.CutPrefix(uid, "${"); ok {
			kind := chosen[strings.TrimSuffix(variable, "}")]
			if kind == p.Datasource.Type && kinds[kind] {
				continue
			}
		} else if s, ok := sources[uid]; ok && s.Type == p.Datasource.Type {
			continue
		}
		return fmt.Errorf("panel %q: no data source %q of type %s", p.Title, uid, p.Datasource.Type)
	}
	return nil
}
