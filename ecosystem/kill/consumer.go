package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// sight is what readers have seen while the broker lived and died.
type sight struct {
	mu        sync.Mutex
	at        map[place]id
	committed map[int32]int64 // highest offset whose commit was acknowledged
	faults    []string
	read      int
	commits   int
}

func newSight() *sight { return &sight{at: map[place]id{}, committed: map[int32]int64{}} }

func (s *sight) fault(format string, args ...any) {
	if len(s.faults) < 20 {
		s.faults = append(s.faults, fmt.Sprintf(format, args...))
	}
}

// see notes a record; one place must hold one record for ever.
func (s *sight) see(r *kgo.Record) {
	s.mu.Lock()
	defer s.mu.Unlock()
	i, whole := parse(r.Value)
	p := place{r.Partition, r.Offset}
	if !whole {
		s.fault("%v holds a value that nobody sent", p)
	}
	if before, known := s.at[p]; known && before != i {
		s.fault("%v held %v and now holds %v", p, before, i)
	}
	s.at[p] = i
	s.read++
}

// tail reads all partitions from the start for as long as the context lives. The records of a
// partition must come without a gap, across every restart.
func tail(ctx context.Context, o options, s *sight) error {
	cl, err := kgo.NewClient(append(clientOptions(o.broker), kgo.ConsumeTopics(o.topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchMaxWait(500*time.Millisecond))...)
	if err != nil {
		return err
	}
	defer cl.Close()
	next := map[int32]int64{}
	for ctx.Err() == nil {
		cl.PollFetches(ctx).EachRecord(func(r *kgo.Record) {
			if r.Offset != next[r.Partition] {
				s.mu.Lock()
				s.fault("reader at %d/%d was given offset %d", r.Partition, next[r.Partition], r.Offset)
				s.mu.Unlock()
			}
			next[r.Partition] = r.Offset + 1
			s.see(r)
		})
	}
	return nil
}

// member reads in a group and commits after every poll.
func member(ctx context.Context, o options, s *sight) error {
	cl, err := kgo.NewClient(append(clientOptions(o.broker), kgo.ConsumeTopics(o.topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.ConsumerGroup(o.topic+"-group"),
		kgo.DisableAutoCommit(), kgo.SessionTimeout(10*time.Second),
		kgo.HeartbeatInterval(time.Second), kgo.FetchMaxWait(500*time.Millisecond))...)
	if err != nil {
		return err
	}
	defer cl.Close()
	for ctx.Err() == nil {
		fetches := cl.PollRecords(ctx, 2_000)
		offsets := map[int32]int64{}
		fetches.EachRecord(func(r *kgo.Record) {
			s.see(r)
			offsets[r.Partition] = r.Offset + 1
		})
		if len(offsets) == 0 {
			continue
		}
		bounded, cancel := context.WithTimeout(ctx, 5*time.Second)
		err := cl.CommitRecords(bounded, fetches.Records()...)
		cancel()
		if err != nil {
			continue // not acknowledged: read again by whoever owns the partition then
		}
		s.mu.Lock()
		for p, offset := range offsets {
			s.committed[p] = max(s.committed[p], offset)
		}
		s.commits++
		s.mu.Unlock()
	}
	return nil
}

// checkCommits: what the broker says is committed is at least what it has acknowledged.
func checkCommits(o options, s *sight) error {
	s.mu.Lock()
	want := map[int32]int64{}
	for p, offset := range s.committed {
		want[p] = offset
	}
	s.mu.Unlock()
	if len(want) == 0 {
		return nil
	}
	cl, err := kgo.NewClient(clientOptions(o.broker)...)
	if err != nil {
		return err
	}
	defer cl.Close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	found, err := kadm.NewClient(cl).FetchOffsets(ctx, o.topic+"-group")
	if err != nil {
		return fmt.Errorf("committed offsets: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for p, offset := range want {
		if got, _ := found.Lookup(o.topic, p); got.At < offset {
			s.fault("commit of %d in partition %d was acknowledged, now it is %d", offset, p, got.At)
		}
	}
	return nil
}
