"""Linear-chain conditional random field: the tags of a sentence are judged together, as a path.

    score(y) = start[y_1] + sum_t emissions[t, y_t] + sum_t transitions[y_(t-1), y_t] + end[y_n]
    p(y)     = exp(score(y) - log Z)        log Z = log of the sum over all paths y' of exp(score(y'))

    a_t[k]   = emissions[t, k] + log sum_j exp(a_(t-1)[j] + transitions[j, k])        the forward algorithm

The same from the right gives the chance of each tag at each word, and a maximum in place of the sum the best path
(Viterbi). Emissions are packed, (words, tags); every sentence must have a word. Paper: Lafferty et al. 2001.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from kinfolk.nn.heads import TextHead
from kinfolk.nn.packed import Layout

PACE = 100


class Crf(nn.Module):
    """Three tables of scores that do not depend on the text: (tags, tags) from row to column, (tags,) and (tags,).

    AdamW moves a weight by about its rate in each step, and rates that suit an encoder (5e-5) would never bring them
    from zero to whole numbers. So they are stored in hundredths.
    """

    def __init__(self, tags: int):
        super().__init__()
        self.transition_bias = nn.Parameter(torch.zeros(tags, tags))
        self.start_bias = nn.Parameter(torch.zeros(tags))
        self.end_bias = nn.Parameter(torch.zeros(tags))

    def tables(self, dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
        weights = (self.transition_bias.to(dtype), self.start_bias.to(dtype), self.end_bias.to(dtype))
        # The value is a hundredfold, the gradient is not: clipping by the norm of all gradients stays fair to the body.
        transitions, start, end = (weight + (PACE - 1) * weight.detach() for weight in weights)
        return transitions, start, end

    def score(self, emissions: Tensor, tags: Tensor, layout: Layout) -> Tensor:
        """Score of one path per sentence: (words, tags) and (words,) -> (sentences,)."""
        transitions, start, end = self.tables(emissions.dtype)
        steps = transitions[tags[:-1], tags[1:]] * (layout.owners[:-1] == layout.owners[1:])
        total = start[layout.first(tags)] + end[layout.last(tags)]
        total = total.index_add(0, layout.owners, emissions.gather(1, tags.unsqueeze(1)).squeeze(1))
        return total.index_add(0, layout.owners[1:], steps)

    def log_partition(self, emissions: Tensor, layout: Layout) -> Tensor:
        """log Z of each sentence: (words, tags) -> (sentences,)."""
        transitions, start, end = self.tables(emissions.dtype)
        return (layout.last(_forward(emissions, layout, start, transitions)) + end).logsumexp(1)

    def marginals(self, emissions: Tensor, layout: Layout) -> Tensor:
        """Chance of each tag at each word, over all paths: (words, tags) -> (words, tags), rows sum to one."""
        transitions, start, end = self.tables(emissions.dtype)
        left = _forward(emissions, layout, start, transitions)
        right = _forward(emissions[layout.reversed_rows], layout, end, transitions.T)[layout.reversed_rows]
        return (left + right - emissions).softmax(1)  # both sides counted the word itself

    def decode(self, emissions: Tensor, layout: Layout) -> Tensor:
        """The path with the highest score: (words, tags) -> (words,)."""
        transitions, start, end = self.tables(emissions.dtype)
        columns = layout.pad(emissions).unbind(1)
        best, came_from = [start + columns[0]], []
        for column in columns[1:]:
            highest, before = (best[-1].unsqueeze(2) + transitions).max(1)
            best.append(column + highest)
            came_from.append(before)
        lengths = torch.tensor(layout.lengths, device=layout.device)
        path = [(best[-1] + end).argmax(1)]
        for position in range(len(columns) - 1, 0, -1):  # from the right; a shorter sentence begins at its own end
            going_on = came_from[position - 1].gather(1, path[-1].unsqueeze(1)).squeeze(1)
            path.append(torch.where(lengths == position, (best[position - 1] + end).argmax(1), going_on))
        return layout.unpad(torch.stack(path[::-1], 1))


def _forward(emissions: Tensor, layout: Layout, start: Tensor, transitions: Tensor) -> Tensor:
    """a_t of every word, (words, tags). Past a sentence's end the sums go on, and are left out."""
    columns = layout.pad(emissions).unbind(1)  # one (sentences, tags) for each position
    sums = [start + columns[0]]
    for column in columns[1:]:
        sums.append(column + (sums[-1].unsqueeze(2) + transitions).logsumexp(1))
    return layout.unpad(torch.stack(sums, 1))


class CrfHead(TextHead):
    """A head whose scores are the emissions of a random field: (tokens, width) -> (tokens, labels)."""

    def __init__(self, width: int, labels: int, dropout: float):
        super().__init__(width, labels, "tokens", dropout)
        self.crf = Crf(labels)
