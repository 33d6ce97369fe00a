package main

import (
	"context"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// readAll gives the whole topic: for each partition the ids in the order of their offsets.
func readAll(o options) (map[int32][]id, []string, error) {
	cl, err := kgo.NewClient(append(clientOptions(o.broker), kgo.ConsumeTopics(o.topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))...)
	if err != nil {
		return nil, nil, err
	}
	defer cl.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	admin := kadm.NewClient(cl)
	ends, err := admin.ListEndOffsets(ctx, o.topic)
	if err != nil {
		return nil, nil, err
	}
	starts, err := admin.ListStartOffsets(ctx, o.topic)
	if err != nil {
		return nil, nil, err
	}
	all, faults, due := map[int32][]id{}, []string{}, int64(0)
	ends.Each(func(e kadm.ListedOffset) { due += e.Offset })
	starts.Each(func(s kadm.ListedOffset) {
		if s.Offset != 0 || s.Err != nil {
			faults = append(faults,
				fmt.Sprintf("partition %d starts at %d, %v", s.Partition, s.Offset, s.Err))
		}
	})
	for n := int64(0); n < due; {
		fetches := cl.PollFetches(ctx)
		if ctx.Err() != nil {
			return all, faults, fmt.Errorf("read %d of %d records within three minutes", n, due)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			i, whole := parse(r.Value)
			if !whole {
				faults = append(faults, fmt.Sprintf("%d/%d: damaged value", r.Partition, r.Offset))
			}
			if next := int64(len(all[r.Partition])); r.Offset != next {
				faults = append(faults, fmt.Sprintf("gap: %d/%d follows %d", r.Partition, r.Offset, next-1))
			}
			all[r.Partition] = append(all[r.Partition], i)
			n++
		})
	}
	return all, faults, nil
}

// outcome of the comparison of what was acknowledged, what was seen and what is there.
type outcome struct {
	read, lost, doubled, moved, reused, disordered, unacked int
	faults                                                  []string
}

func (v *outcome) fault(format string, args ...any) {
	if len(v.faults) < 20 {
		v.faults = append(v.faults, fmt.Sprintf(format, args...))
	}
}

func verify(all map[int32][]id, l *ledger, s *sight) (v outcome) {
	found := map[id]place{}
	for p, ids := range all {
		last := map[int]int{}
		for offset, i := range ids {
			here := place{p, int64(offset)}
			v.read++
			if before, twice := found[i]; twice {
				v.doubled++
				v.fault("doubled: %v at %v and %v", i, before, here)
			}
			found[i] = here
			if before, any := last[i.producer]; any && i.seq < before {
				v.disordered++
				v.fault("order: %v after number %d at %v", i, before, here)
			}
			last[i.producer] = i.seq
			if _, acked := l.acked[i]; !acked {
				v.unacked++
			}
			if seen, known := s.at[here]; known && seen != i {
				v.reused++
				v.fault("reused: %v was read as %v, is now %v", here, seen, i)
			}
		}
	}
	for i, p := range l.acked {
		switch at, there := found[i]; {
		case !there:
			v.lost++
			v.fault("lost: %v, acknowledged at %v", i, p)
		case at != p:
			v.moved++
			v.fault("moved: %v, acknowledged at %v, is at %v", i, p, at)
		}
	}
	for p := range s.at {
		if p.offset >= int64(len(all[p.partition])) {
			v.lost++
			v.fault("lost: %v was read once and is gone", p)
		}
	}
	return v
}
