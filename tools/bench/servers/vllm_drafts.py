"""vllm_drafts.py: a model and prompts by which many drafts of ngram speculation are accepted.

In a vocabulary of 128 tokens, each token occurs in the prompt, so there are drafts for each row in
each step; vLLM 0.26 takes a FULL graph for such steps only. Here a token is mostly followed by the
same other one, its successor, both in prompts and in what the model makes. Invariant: vLLM takes
drafts from the first occurrence of a token, so a prompt begins with all tokens, each before its
successor.
"""

import collections
import random

VOCABULARY, LAYERS = 128, 4
JUMP = 0.15  # how often another token than the successor follows in a prompt
SIGNAL = 0.0065  # of a token's embedding, the part that its successor's row of lm_head gets


def successors():
    """Returns the successor of each token; following them leads through all tokens."""
    order = list(range(VOCABULARY))
    random.Random(11).shuffle(order)
    after = [0] * VOCABULARY
    for token, following in zip(order, order[1:] + order[:1]):
        after[token] = following
    return after


def favour_successors(model):
    """Changes lm_head so that a token's successor is often the best next token."""
    import torch

    weights = dict(model.named_parameters())
    lm_head, embed = weights["lm_head.weight"].data, weights["model.embed_tokens.weight"].data
    after = torch.tensor(successors(), device=embed.device)
    lm_head[after] += SIGNAL * embed[:VOCABULARY]


def prompts(count, length):
    """Returns prompts of fewer than `length` tokens; longer lists begin with the shorter ones."""
    chance, after, made = random.Random(5), successors(), []
    for row in range(count):
        tokens = [chance.randrange(VOCABULARY)]
        while len(tokens) < VOCABULARY:
            tokens.append(after[tokens[-1]])
        while len(tokens) < length - 48 - 3 * (row % 16):
            tokens.append(chance.randrange(VOCABULARY) if chance.random() < JUMP
                          else after[tokens[-1]])
        made.append({"prompt_token_ids": tokens})
    return made


class DraftCounter:
    """Counts drafts, and those that were accepted."""

    def __init__(self):
        self.seen, self.accepted = collections.Counter(), collections.Counter()

    def listen(self):
        from vllm.v1.core.sched.scheduler import Scheduler

        original = Scheduler.make_spec_decoding_stats

        def counted(scheduler, stats, num_draft_tokens, num_accepted_tokens, *rest, **named):
            self.seen["drafts"] += num_draft_tokens
            self.accepted[num_accepted_tokens] += 1
            return original(scheduler, stats, num_draft_tokens, num_accepted_tokens, *rest, **named)

        Scheduler.make_spec_decoding_stats = counted

    def take(self):
        """Returns what was counted since the last call."""
        rows = self.accepted
        made = dict(drafts=self.seen["drafts"], accepted=sum(n * rows[n] for n in rows),
                    rows_by_accepted={str(n): rows[n] for n in sorted(rows)})
        self.seen.clear()
        self.accepted.clear()
        return made
