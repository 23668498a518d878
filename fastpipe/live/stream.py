"""`stream_transcribe`: the options, and the loops around a session."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, AsyncIterator, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, overload

import numpy as np

from fastpipe.errors import OptionError
from fastpipe.live.chunks import Reader
from fastpipe.live.detectors import SpeechDetector, detector
from fastpipe.live.hearing import TIMESTAMPS, Hearing
from fastpipe.live.records import TranscriptUpdate
from fastpipe.live.session import Pace, Session

_RATE_HZ = 16000  # of pipelines that do not say theirs
_WHISPER_S = 30.0  # longer audio is another algorithm of Whisper's


@overload
def stream_transcribe(pipe: Any, chunks: AsyncIterable[Any], **options: Any) -> AsyncIterator[TranscriptUpdate]: ...
@overload
def stream_transcribe(pipe: Any, chunks: Iterable[Any], **options: Any) -> Iterator[TranscriptUpdate]: ...
def stream_transcribe(
    pipe: Any,
    chunks: Iterable[Any] | AsyncIterable[Any],
    *,
    sampling_rate: int | None = None,
    interval_s: float = 1.0,
    window_s: float = 16.0,
    max_delay_s: float = 6.0,
    silence_s: float = 0.6,
    vad: str | SpeechDetector | None = "energy",
    timestamps: str = "auto",
    keep_up: bool = True,
    **parameters: Any,
) -> Iterator[TranscriptUpdate] | AsyncIterator[TranscriptUpdate]:
    """Transcribe audio while it arrives.

    What is being said is transcribed again and again, in a window that slides along the stream. Words on which two
    transcriptions agree become final, those that have waited too long become final by force, and so do all words when
    the speaker pauses. The window is cut behind final words: neither time nor memory grows with the stream.

    Args:
        pipe: An automatic-speech-recognition pipeline, fastpipe's or transformers': Whisper, CTC, or another model.
        chunks: An iterator or async iterator of chunks of any length: float arrays between -1 and 1 or int16 arrays,
            of shape (samples,); bytes of 16-bit little-endian PCM; or {"raw" or "array": array, "sampling_rate": Hz}.
            All mono. They are not changed.
        sampling_rate: Of chunks that do not say it, in Hz. Default: the pipeline's. Another one is resampled.
        interval_s: Seconds of audio between two transcriptions of what is being said.
        window_s: Seconds of audio in the longest window.
        max_delay_s: Seconds of audio after which a word that has been heard becomes final by force; half of
            `window_s` at most.
        silence_s: Seconds of silence that end an utterance, and make all of it final.
        vad: Finds speech: "energy" by loudness; "silero" by a network (`pip install 'transformers-fastpipe[live]'`);
            an object like `fastpipe.live.detectors.SpeechDetector`; or `None`, which takes all audio for speech.
        timestamps: "word", "segment" or "none", by what the model can do; "auto" takes the first that it can.
        keep_up: Whether a transcription that takes longer than `interval_s` puts off the next one by as long, up to a
            quarter of `window_s`: a slow machine then transcribes less often instead of falling behind.
        parameters: For each call of the pipeline, such as `generate_kwargs={"language": "german"}`: a model of many
            languages guesses it anew in every window otherwise.

    Returns:
        A generator of updates, an async one for an async iterator, in which the pipeline runs in a thread of its own.
        The last update has the figures of the stream. When the source raises, what was heard before becomes final, and
        the error comes after it.

    Raises:
        OptionError: An option has no such value, or `chunks` is no iterator of chunks.
        MissingBackendError: silero-vad was asked for and is not installed.
        InputError: A chunk is no audio; `index` says which. Raised while iterating, as are errors of the pipeline.
    """
    rate_hz = int(getattr(getattr(pipe, "feature_extractor", None), "sampling_rate", None) or _RATE_HZ)
    pace = Pace(interval_s=interval_s, window_s=window_s, max_delay_s=max_delay_s, silence_s=silence_s, keep_up=keep_up)
    _check(pipe, pace)
    if timestamps not in TIMESTAMPS:
        raise OptionError(f"timestamps={timestamps!r} is none", remedy=f"There are {', '.join(map(repr, TIMESTAMPS))}.")
    if sampling_rate is not None and (not isinstance(sampling_rate, int) or sampling_rate < 1):
        raise OptionError(f"sampling_rate={sampling_rate!r} is no number of Hz", remedy="Give a whole number above 0.")
    single = isinstance(chunks, (np.ndarray, bytes, bytearray, str, Mapping))
    if single or not isinstance(chunks, (Iterable, AsyncIterable)):
        fact = f"chunks is a {type(chunks).__name__}, not an iterator of chunks"
        raise OptionError(fact, remedy="Put a single chunk into a list.")
    hear = Hearing(pipe, rate_hz, timestamps, parameters)
    session = Session(hear, Reader(rate_hz, sampling_rate or rate_hz), detector(vad, rate_hz), rate_hz, pace)
    if isinstance(chunks, AsyncIterable):
        return _asynchronous(session, chunks)
    return _synchronous(session, chunks)


def _check(pipe: Any, pace: Pace) -> None:
    """Refuse what cannot work.

    Raises:
        OptionError: A number is out of its range.
    """
    for name in ("interval_s", "window_s", "max_delay_s", "silence_s"):
        value = getattr(pace, name)
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < float("inf"):
            raise OptionError(f"{name}={value!r} is no number of seconds", remedy="Give a number above 0.")
    if pace.max_delay_s > pace.window_s / 2:
        fact = f"max_delay_s={pace.max_delay_s:g} is more than half of window_s={pace.window_s:g}"
        raise OptionError(fact, remedy="Words that may be late need a longer window.")
    if pace.interval_s > pace.max_delay_s:
        fact = f"interval_s={pace.interval_s:g} is more than max_delay_s={pace.max_delay_s:g}"
        raise OptionError(fact, remedy="Transcribe more often, or allow a longer delay.")
    if getattr(pipe, "type", "") == "seq2seq_whisper" and pace.window_s >= _WHISPER_S:
        raise OptionError(
            f"window_s={pace.window_s:g} is too long", remedy=f"Whisper takes less than {_WHISPER_S:g} s."
        )


def _synchronous(session: Session, chunks: Iterable[Any]) -> Iterator[TranscriptUpdate]:
    failure: Exception | None = None
    source = iter(chunks)
    while failure is None:
        try:
            samples = session.read(next(source))
        except StopIteration:
            break
        except Exception as error:
            failure = error
        else:
            yield from session.listen(samples)
    yield from session.finish()
    if failure:
        raise failure


async def _asynchronous(session: Session, chunks: AsyncIterable[Any]) -> AsyncIterator[TranscriptUpdate]:
    # One thread for the whole stream: torch keeps a set of threads for every thread that calls it.
    pool = ThreadPoolExecutor(1, thread_name_prefix="fastpipe-live")
    loop = asyncio.get_running_loop()

    async def each(updates: Iterator[TranscriptUpdate]) -> AsyncIterator[TranscriptUpdate]:
        while (update := await loop.run_in_executor(pool, partial(next, updates, None))) is not None:
            yield update

    failure: Exception | None = None
    source = aiter(chunks)
    try:
        while failure is None:
            try:
                samples = session.read(await anext(source))
            except StopAsyncIteration:
                break
            except Exception as error:
                failure = error
            else:
                async for update in each(session.listen(samples)):
                    yield update
        async for update in each(session.finish()):
            yield update
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
    if failure:
        raise failure
