"""What editors and type checkers see: one overload for each task, with the class of its result."""

from collections.abc import Mapping
from os import PathLike
from typing import Any, Literal, overload

from transformers import (
    AudioClassificationPipeline,
    AutomaticSpeechRecognitionPipeline,
    DepthEstimationPipeline,
    DocumentQuestionAnsweringPipeline,
    FeatureExtractionPipeline,
    FillMaskPipeline,
    ImageClassificationPipeline,
    ImageFeatureExtractionPipeline,
    ImageSegmentationPipeline,
    ImageTextToTextPipeline,
    ObjectDetectionPipeline,
    TableQuestionAnsweringPipeline,
    TextClassificationPipeline,
    TextGenerationPipeline,
    TextToAudioPipeline,
    TokenClassificationPipeline,
    VideoClassificationPipeline,
    ZeroShotAudioClassificationPipeline,
    ZeroShotClassificationPipeline,
    ZeroShotImageClassificationPipeline,
    ZeroShotObjectDetectionPipeline,
)
from transformers.pipelines.base import Pipeline

from fastpipe import errors as errors
from fastpipe.contest import Tuning as Tuning
from fastpipe.hardware import Hardware as Hardware
from fastpipe.hardware import detect_hardware as detect_hardware
from fastpipe.live.records import TranscriptUpdate as TranscriptUpdate
from fastpipe.live.stream import stream_transcribe as stream_transcribe
from fastpipe.options import Accuracy as Accuracy
from fastpipe.plan import Plan as Plan
from fastpipe.precision.report import Report as Report
from fastpipe.tuning import tune as tune
from fastpipe.verification import Verification as Verification
from fastpipe.verification import verify as verify

__all__ = [
    "Accuracy",
    "Hardware",
    "Plan",
    "Report",
    "TranscriptUpdate",
    "Tuning",
    "Verification",
    "__version__",
    "detect_hardware",
    "errors",
    "pipeline",
    "stream_transcribe",
    "tune",
    "verify",
]
__version__: str

@overload
def pipeline(
    task: Literal["audio-classification"],
    model: str | PathLike[str] | Any | None = ...,
    *args: Any,
    backend: str | None = ...,
    precision: str | None = ...,
    calibration_data: Any = ...,
    accuracy: float | Accuracy | Mapping[str, float] | Literal["auto"] | None = ...,
    cache_dir: str | PathLike[str] | None = ...,
    **kwargs: Any,
) -> AudioClassificationPipeline: ...
@overload
def pipeline(
    task: Literal["automatic-speech-recognition"],
    model: str | PathLike[str] | Any | None = ...,
    *args: Any,
    backend: str | None = ...,
    precision: str | None = ...,
    calibration_data: Any = ...,
    accuracy: float | Accuracy | Mapping[str, float] | Literal["auto"] | None = ...,
    cache_dir: str | PathLike[str] | None = ...,
    **kwargs: Any,
) -> AutomaticSpeechRecognitionPipeline: ...
@overload
def pipeline(
    task: Literal["depth-estimation"],
    model: str | PathLike[str] | Any | None = ...,
    *args: Any,
    backend: str | None = ...,
    precision: str | None = ...,
    calibration_data: Any = ...,
    accuracy: float | Accuracy | Mapping[str, float] | Literal["auto"] | None = ...,
    cache_dir: str | PathLike[str] | None = ...,
    **kwargs: Any,
) -> DepthEstimationPipeline: ...
@overload
def pipeline(
    task: Literal["document-question-answering"],
    model: str | PathLike[str] | Any | None = ...,
    *args: Any,
    backend: str | None = ...,
    precision: str | None = ...,
    calibration_data: Any = ...,
    accuracy: float | Accuracy | Mapping[str, float] | Literal["auto"] | None = ...,
    cache_dir: str | PathLike[str] | None = ...,
    **kwargs: Any,
) -> DocumentQuestionAnsweringPipeline: ...
@overload
def pipeline(
    task: Literal["feature-extraction"],
    model: str | PathLike[str] | Any | None = ...,
    *args: Any,
    backend: str | None = ...,
    precision: str | None = ...,
    calibration_data: Any = ...,
    accuracy: float | Accuracy | Mapping[str, float] | Literal["auto"] | None = ...,
    cache_dir: str | PathLike[str] | None = ...,
    **kwargs: Any,
) -> FeatureExtractionPipeline: ...
@overload
def pipeline(
    task: Literal["fill-mask"],
    model: str | PathLike[str] | Any | None = ...,
    *args: Any,
    backend: str | None = ...,
    precision: str | None = ...,
    calibration_data: Any = ...,
    accuracy: float | Accuracy | Mapping[str, float] | Literal["auto"] | None = ...,
    cache_dir: str | PathLike[str] | None = ...,
    **kwargs: Any,
) -> FillMaskPipeline: ...
@overload
def pipeline(
    task: Literal["image-classification"],
    model: str | PathLike[str] | Any | None = ...,
    *args: Any,
    backend: str | None = ...,
    precision: str | None = ...,
    calibration_data: Any = ...,
    accuracy: float | Accuracy | Mapping[str, float] | Literal["auto"] | None = ...,
    cache_dir: str | PathLike[str] | None = ...,
    **kwargs: Any,
) -> ImageClassificationPipeline: ...
@overload
def pipeline(
    task: Literal["image-feature-extraction"],
    model: str | PathLike[str] | Any | None = ...,
    *args: Any,
    backend: str | None = ...,
    precision: str | None = ...,
    calibration_data: Any = ...,
    accuracy: float | Accuracy | Mapping[str, float] | Literal["auto"] | None = ...,
    cache_dir: str | PathLike[str] | None = ...,
    **kwargs: Any,
) -> ImageFeatureExtractionPipeline: ...
@overload
def pipeline(
    task: Literal["image-segmentation"],
    model: str | PathLike[str] | Any | None = ...,
    *args: Any,
    backend: str | None = ...,
    precision: str | None = ...,
    calibration_data: Any = ...,
    accuracy: float | Accuracy | Mapping[str, float] | Literal["auto"] | None = ...,
    cache_dir: str | PathLike[str] | None = ...,
    **kwargs: Any,
) -> ImageSegmentationPipeline: ...
@overload
def pipeline(
    task: Literal["image-text-to-text"],
    model: str | PathLike[str] | Any | None = ...,
    *args: Any,
    backend: str | None = ...,
    precision: str | None = ...,
    calibration_data: Any = ...,
    accuracy: float | Accuracy | Mapping[str, float] | Literal["auto"] | None = ...,
    cache_dir: str | PathLike[str] | None = ...,
    **kwargs: Any,
) -> ImageTextToTextPipeline: ...
@overload
def pipeline(
    task: Literal["object-detection"],
    model: str | PathLike[str] | Any | None = ...,
    *args: Any,
    backend: str | None = ...,
    precision: str | None = ...,
    calibration_data: Any = ...,
    accuracy: float | Accuracy | Mapping[str, float] | Literal["auto"] | None = ...,
    cache_dir: str | PathLike[str] | None = ...,
    **kwargs: Any,
) -> ObjectDetectionPipeline: ...
@overload
def pipeline(
    task: Literal["table-question-answering"],
    model: str | PathLike[str] | Any | None = ...,
    *args: Any,
    backend: str | None = ...,
    precision: str | None = ...,
    calibration_data: Any = ...,
    accuracy: float | Accuracy | Mapping[str, float] | Literal["auto"] | None = ...,
    cache_dir: str | PathLike[str] | None = ...,
    **kwargs: Any,
) -> TableQuestionAnsweringPipeline: ...
@overload
def pipeline(
    task: Literal["text-classification", "sentiment-analysis"],
    model: str | PathLike[str] | Any | None = ...,
    *args: Any,
    backend: str | None = ...,
    precision: str | None = ...,
    calibration_data: Any = ...,
    accuracy: float | Accuracy | Mapping[str, float] | Literal["auto"] | None = ...,
    cache_dir: str | PathLike[str] | None = ...,
    **kwargs: Any,
) -> TextClassificationPipeline: ...
@overload
def pipeline(
    task: Literal["text-generation"],
    model: str | PathLike[str] | Any | None = ...,
    *args: Any,
    backend: str | None = ...,
    precision: str | None = ...,
    calibration_data: Any = ...,
    accuracy: float | Accuracy | Mapping[str, float] | Literal["auto"] | None = ...,
    cache_dir: str | PathLike[str] | None = ...,
    **kwargs: Any,
) -> TextGenerationPipeline: ...
@overload
def pipeline(
    task: Literal["text-to-audio", "text-to-speech"],
    model: str | PathLike[str] | Any | None = ...,
    *args: Any,
    backend: str | None = ...,
    precision: str | None = ...,
    calibration_data: Any = ...,
    accuracy: float | Accuracy | Mapping[str, float] | Literal["auto"] | None = ...,
    cache_dir: str | PathLike[str] | None = ...,
    **kwargs: Any,
) -> TextToAudioPipeline: ...
@overload
def pipeline(
    task: Literal["token-classification", "ner"],
    model: str | PathLike[str] | Any | None = ...,
    *args: Any,
    backend: str | None = ...,
    precision: str | None = ...,
    calibration_data: Any = ...,
    accuracy: float | Accuracy | Mapping[str, float] | Literal["auto"] | None = ...,
    cache_dir: str | PathLike[str] | None = ...,
    **kwargs: Any,
) -> TokenClassificationPipeline: ...
@overload
def pipeline(
    task: Literal["video-classification"],
    model: str | PathLike[str] | Any | None = ...,
    *args: Any,
    backend: str | None = ...,
    precision: str | None = ...,
    calibration_data: Any = ...,
    accuracy: float | Accuracy | Mapping[str, float] | Literal["auto"] | None = ...,
    cache_dir: str | PathLike[str] | None = ...,
    **kwargs: Any,
) -> VideoClassificationPipeline: ...
@overload
def pipeline(
    task: Literal["zero-shot-audio-classification"],
    model: str | PathLike[str] | Any | None = ...,
    *args: Any,
    backend: str | None = ...,
    precision: str | None = ...,
    calibration_data: Any = ...,
    accuracy: float | Accuracy | Mapping[str, float] | Literal["auto"] | None = ...,
    cache_dir: str | PathLike[str] | None = ...,
    **kwargs: Any,
) -> ZeroShotAudioClassificationPipeline: ...
@overload
def pipeline(
    task: Literal["zero-shot-classification"],
    model: str | PathLike[str] | Any | None = ...,
    *args: Any,
    backend: str | None = ...,
    precision: str | None = ...,
    calibration_data: Any = ...,
    accuracy: float | Accuracy | Mapping[str, float] | Literal["auto"] | None = ...,
    cache_dir: str | PathLike[str] | None = ...,
    **kwargs: Any,
) -> ZeroShotClassificationPipeline: ...
@overload
def pipeline(
    task: Literal["zero-shot-image-classification"],
    model: str | PathLike[str] | Any | None = ...,
    *args: Any,
    backend: str | None = ...,
    precision: str | None = ...,
    calibration_data: Any = ...,
    accuracy: float | Accuracy | Mapping[str, float] | Literal["auto"] | None = ...,
    cache_dir: str | PathLike[str] | None = ...,
    **kwargs: Any,
) -> ZeroShotImageClassificationPipeline: ...
@overload
def pipeline(
    task: Literal["zero-shot-object-detection"],
    model: str | PathLike[str] | Any | None = ...,
    *args: Any,
    backend: str | None = ...,
    precision: str | None = ...,
    calibration_data: Any = ...,
    accuracy: float | Accuracy | Mapping[str, float] | Literal["auto"] | None = ...,
    cache_dir: str | PathLike[str] | None = ...,
    **kwargs: Any,
) -> ZeroShotObjectDetectionPipeline: ...
@overload
def pipeline(
    task: str | None = ...,
    model: str | PathLike[str] | Any | None = ...,
    *args: Any,
    backend: str | None = ...,
    precision: str | None = ...,
    calibration_data: Any = ...,
    accuracy: float | Accuracy | Mapping[str, float] | Literal["auto"] | None = ...,
    cache_dir: str | PathLike[str] | None = ...,
    **kwargs: Any,
) -> Pipeline: ...
